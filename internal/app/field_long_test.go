package app_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func long() bool { return os.Getenv("ENVOY_RLS_LONG") != "" }

// TestField_MillionKeys: however many keys clients have, the number of series stays the same.
func TestField_MillionKeys(t *testing.T) {
	keys := 20_000
	if long() {
		keys = 1_000_000
	}
	m := metrics.New(metrics.Options{})
	limiter, set := limiterOf(t, perIP, m)
	m.Use(set)
	decide(t, limiter, hostname)
	before := series(t, m)
	for n := range keys {
		decide(t, limiter, fmt.Sprintf("10.%d.%d.%d", n>>16, n>>8&255, n&255))
	}
	require.Equal(t, before, series(t, m))
}

func limiterOf(t *testing.T, policies string, m *metrics.Metrics) (*ratelimit.Limiter, *policy.Set) {
	t.Helper()
	limiter := ratelimit.New(ratelimit.Options{
		Store: memorybackend.New(memorybackend.Options{}), OnDecision: m.OnDecision,
	})
	set := setOf(t, policies)
	limiter.Use(set)
	return limiter, set
}

func setOf(t *testing.T, policies string) *policy.Set {
	t.Helper()
	file, err := policy.Parse("policies.yaml", []byte(policies))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	return set
}

func decide(t *testing.T, limiter *ratelimit.Limiter, ip string) time.Duration {
	r := limiter.Begin([]byte("edge"))
	defer r.Release()
	r.Add(0, []byte("ip"), []byte(ip))
	return r.Check(t.Context()).Took
}

func series(t *testing.T, m *metrics.Metrics) int {
	t.Helper()
	families, err := m.Registry().Gather()
	require.NoError(t, err)
	n := 0
	for _, family := range families {
		if strings.HasPrefix(family.GetName(), "envoy_rls_") {
			n += len(family.GetMetric())
		}
	}
	return n
}

// many is a file with n policies, one of which applies to every request.
func many(n, capacity int) string {
	var text strings.Builder
	text.WriteString("domain: edge\npolicies:\n")
	for i := range n {
		match := fmt.Sprintf("match: {plan: plan-%d}, ", i)
		if i == n/2 {
			match = ""
		}
		fmt.Fprintf(&text, "  - {id: p-%d, %skey: [ip], algorithm: token-bucket, capacity: %d, refillPerMinute: 5, onStoreFailure: open}\n", i, match, capacity)
	}
	return text.String()
}
