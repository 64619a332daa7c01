package metrics_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
)

func TestSharedStore(t *testing.T) {
	state := metrics.Shared{Queued: map[string]int{"10.0.0.1:6379": 3}}
	m := metrics.New(metrics.Options{
		Shared: func() metrics.Shared { return state }, Cache: func() metrics.Cache { return metrics.Cache{Denials: 7, Learnt: 2} },
	})
	m.OnStoreCall(400 * time.Microsecond)
	m.OnStoreFailure("timeout", 5*time.Millisecond)
	m.OnStoreFailure("timeout", 5*time.Millisecond)
	m.OnUnanswered("closed", "timeout")
	m.OnUndo(2)
	m.OnUndoFailed()
	m.OnSlotReload("dial")
	want := []string{
		"rejection_cache_denials_total 7",
		"rejection_cache_learnt_total 2",
		`store_calls_total{result="answered"} 1`,
		`store_calls_total{result="timeout"} 2`,
		`store_queued_calls{node="10.0.0.1:6379"} 3`,
		`store_slot_reloads_total{reason="dial"} 1`,
		`store_undos_total{result="begun"} 2`,
		`store_undos_total{result="failed"} 1`,
		`unanswered_buckets_total{mode="closed",reason="timeout"} 1`,
	}
	require.Equal(t, want, exposed(t, m, "rejection", "store_calls", "store_queued", "store_may", "store_slot", "store_undos", "unanswered"))
	require.Contains(t, exposed(t, m, "store_call_duration"), `store_call_duration_seconds_bucket{le="0.005"} 3`)

	for may, value := range map[bool]string{true: "1", false: "0"} {
		state.MayEvict = &may
		require.Equal(t, []string{"store_may_evict " + value}, exposed(t, m, "store_may"))
	}
	problems, err := testutil.GatherAndLint(m.Registry())
	require.NoError(t, err)
	require.Empty(t, problems)
}
