package app_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
)

func bucket(id string, capacity int, refill string) string {
	return fmt.Sprintf("domain: edge\npolicies:\n  - {id: %s, key: [ip], algorithm: token-bucket, capacity: %d, %s, onStoreFailure: open}\n", id, capacity, refill)
}

// TestField_LowerCapacityAfterReload: capacity 1000, one call, reload with capacity 10: 10 more, not 999.
func TestField_LowerCapacityAfterReload(t *testing.T) {
	i := start(t, bucket("p", 1000, "refillPerDay: 1"))
	require.Equal(t, 1, i.admitted(1, "ip", hostname))
	require.NoError(t, i.reload(bucket("p", 10, "refillPerDay: 1")))
	require.Equal(t, 10, i.admitted(30, "ip", hostname))
}

// TestField_FasterRateAfterReload: drained at 10, rate raised 100 times: the next one is admitted 100 times sooner.
func TestField_FasterRateAfterReload(t *testing.T) {
	i := start(t, bucket("p", 10, "refillPerHour: 1"))
	require.Equal(t, 10, i.admitted(20, "ip", hostname))
	require.Equal(t, 3600, retryAfter(t, i.call("ip", hostname)))
	require.NoError(t, i.reload(bucket("p", 10, "refillPerHour: 100")))
	require.InDelta(t, 36, retryAfter(t, i.call("ip", hostname)), 1)
}

// retryAfter is a denial's wait in seconds.
func retryAfter(t *testing.T, answer *rlsv3.RateLimitResponse) int {
	t.Helper()
	seconds, err := strconv.Atoi(header(answer, "Retry-After"))
	require.NoError(t, err, answer)
	return seconds
}

// TestField_FaultyReload: the old set stays; a metric, the status page and the log say why.
func TestField_FaultyReload(t *testing.T) {
	i := start(t, perIP)
	version := i.status().Policies.Version
	twice := perIP + "  - {id: per-ip, key: [ip], algorithm: token-bucket, capacity: 3, refillPerDay: 3, onStoreFailure: open}\n"
	require.Error(t, i.reload(twice))

	require.Equal(t, 3, i.admitted(10, "ip", hostname))
	got := i.status().Policies
	require.Equal(t, version, got.Version)
	require.Contains(t, got.Error, i.policies+":4:10")
	require.Contains(t, got.Error, i.policies+":3:10")
	require.NotNil(t, got.FailedAt)
	require.Equal(t, "1", i.metric(`envoy_rls_reload_total{result="failure"}`))
	require.Equal(t, "1", i.metric("envoy_rls_reload_failing"))
	require.Contains(t, i.log.String(), "the old ones stay")
	code, _ := i.page("/readyz")
	require.Equal(t, 200, code, "the service goes on")

	require.NoError(t, i.reload(bucket("p", 5, "refillPerDay: 1")))
	require.Equal(t, "0", i.metric("envoy_rls_reload_failing"))
	require.Equal(t, "2", i.metric(`envoy_rls_reload_total{result="success"}`))
	require.Empty(t, i.status().Policies.Error)
	require.Equal(t, "1", i.metric(fmt.Sprintf("envoy_rls_policy_set_info{version=%q}", i.status().Policies.Version)))
}

// TestFaultTakenBack: a fault that is undone is no reload, and nothing complains any more.
func TestFaultTakenBack(t *testing.T) {
	i := start(t, perIP)
	require.Error(t, i.reload("nonsense"))
	require.NoError(t, i.reload(perIP))
	require.Contains(t, i.log.String(), `level=INFO msg="policy files are sound again" version=`+i.status().Policies.Version)
	require.Equal(t, "0", i.metric("envoy_rls_reload_failing"))
	require.Empty(t, i.status().Policies.Error)
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc: cannot count file descriptors")
	}
	return len(entries)
}
