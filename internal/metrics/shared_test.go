package metrics_test

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
)

func TestSharedStore(t *testing.T) {
	const one, two = "10.0.0.1:6379", "10.0.0.2:6379"
	state := metrics.Shared{
		Nodes:     map[string]metrics.NodeState{one: {Queued: 3, Breaker: "closed"}, two: {Breaker: "open"}},
		Available: 0.5,
	}
	m := metrics.New(metrics.Options{
		Shared: func() metrics.Shared { return state }, Cache: func() metrics.Cache { return metrics.Cache{Denials: 7, Learnt: 2} },
	})
	m.OnStoreCall(one, 400*time.Microsecond, false)
	m.OnStoreCall(one, 400*time.Microsecond, true)
	m.OnStoreFailure(two, "timeout", 5*time.Millisecond)
	m.OnStoreFailure("", "no-node", 5*time.Millisecond)
	m.OnLateReply(two)
	m.OnBreaker(two, "open")
	m.OnUnanswered("closed", "timeout")
	m.OnUndo(2)
	m.OnUndoFailed()
	m.OnSlotReload("dial")
	want := []string{
		"rejection_cache_denials_total 7",
		"rejection_cache_learnt_total 2",
		`store_available 0.5`,
		`store_breaker_state{node="10.0.0.1:6379"} 0`,
		`store_breaker_state{node="10.0.0.2:6379"} 2`,
		`store_breaker_transitions_total{node="10.0.0.2:6379",to="open"} 1`,
		`store_calls_total{node="10.0.0.1:6379",result="answered"} 2`,
		`store_calls_total{node="10.0.0.2:6379",result="timeout"} 1`,
		`store_calls_total{node="unknown",result="no-node"} 1`,
		`store_late_replies_total{node="10.0.0.2:6379"} 1`,
		`store_merged_calls_total{node="10.0.0.1:6379"} 1`,
		`store_queued_calls{node="10.0.0.1:6379"} 3`,
		`store_queued_calls{node="10.0.0.2:6379"} 0`,
		`store_slot_reloads_total{reason="dial"} 1`,
		`store_undos_total{result="begun"} 2`,
		`store_undos_total{result="failed"} 1`,
		`unanswered_buckets_total{mode="closed",reason="timeout"} 1`,
	}
	require.Equal(t, want, slices.DeleteFunc(exposed(t, m,
		"rejection", "store_available", "store_breaker", "store_calls", "store_late", "store_merged", "store_queued", "store_may", "store_slot", "store_undos", "unanswered",
	), func(line string) bool {
		return strings.HasSuffix(line, " 0") && !strings.Contains(line, "state") && !strings.Contains(line, "queued")
	}))
	require.Contains(t, exposed(t, m, "store_call_duration"), `store_call_duration_seconds_bucket{node="10.0.0.2:6379",le="0.005"} 1`)

	for may, value := range map[bool]string{true: "1", false: "0"} {
		state.MayEvict = &may
		require.Equal(t, []string{"store_may_evict " + value}, exposed(t, m, "store_may"))
	}
	problems, err := testutil.GatherAndLint(m.Registry())
	require.NoError(t, err)
	require.Empty(t, problems)
}

// TestSeriesOfNodes: those of a node begin at 0 when it is known, and end with it.
func TestSeriesOfNodes(t *testing.T) {
	state := metrics.Shared{Nodes: map[string]metrics.NodeState{"a": {Breaker: "closed"}}}
	m := metrics.New(metrics.Options{Shared: func() metrics.Shared { return state }})
	require.Contains(t, exposed(t, m, "store_calls"), `store_calls_total{node="a",result="answered"} 0`)
	require.Contains(t, exposed(t, m, "store_breaker"), `store_breaker_transitions_total{node="a",to="open"} 0`)
	before := len(exposed(t, m, "store_"))
	for _, name := range []string{"b", "c", "d", "e"} {
		m.OnStoreCall("a", time.Millisecond, false)
		m.OnStoreFailure("a", "timeout", time.Millisecond)
		m.OnLateReply("a")
		m.OnBreaker("a", "open")
		state.Nodes = map[string]metrics.NodeState{name: {Breaker: "closed"}}
		exposed(t, m, "store_") // whoever calls meanwhile may still count for the old one
		require.Len(t, exposed(t, m, "store_"), before)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { m.OnStoreCall("e", time.Millisecond, true) }))
}

// TestCountsWhileNodesGo: a node that comes and goes while calls to it are told of leaves nothing behind.
func TestCountsWhileNodesGo(t *testing.T) {
	var there atomic.Bool
	m := metrics.New(metrics.Options{Shared: func() metrics.Shared {
		if there.Load() {
			return metrics.Shared{Nodes: map[string]metrics.NodeState{"a": {Breaker: "closed"}}}
		}
		return metrics.Shared{}
	}})
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for range 2000 {
				m.OnStoreCall("a", time.Millisecond, false)
				m.OnStoreFailure("a", "dial", time.Millisecond)
				m.OnBreaker("a", "open")
			}
		})
	}
	for n := range 50 {
		there.Store(n%2 == 0)
		exposed(t, m, "store_")
	}
	callers.Wait()
	there.Store(false)
	exposed(t, m, "store_")
	for _, line := range exposed(t, m, "store_") {
		require.NotContains(t, line, `node="a"`)
	}
}
