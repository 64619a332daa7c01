package metrics_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestOnDecisionAllocatesNothing(t *testing.T) {
	m := metrics.New(metrics.Options{})
	s := set(t, "one", "two", "shady")
	m.Use(s)
	lacking := check(s.Policies()[1], ratelimit.Denied, ratelimit.FromMissingKey)
	lacking.Missing = "username"
	d := decision(s, false, check(s.Policies()[0], ratelimit.Admitted, ratelimit.FromStore), lacking)
	d.InvalidIPs = 1
	require.Zero(t, testing.AllocsPerRun(100, func() { m.OnDecision(d) }))
}

// TestCountsWhileSetsChange counts from several goroutines while the set changes: nothing is lost.
func TestCountsWhileSetsChange(t *testing.T) {
	m := metrics.New(metrics.Options{})
	one, two := set(t, "a", "b"), set(t, "b", "a")
	m.Use(one)
	const callers, calls = 4, 2000
	var callersDone sync.WaitGroup
	for i := range callers {
		callersDone.Go(func() {
			s := one
			if i%2 == 1 {
				s = two
			}
			d := decision(s, true, check(s.Policies()[0], ratelimit.Admitted, ratelimit.FromStore), check(s.Policies()[1], ratelimit.Denied, ratelimit.FromStore))
			d.Checks[0].Missing = "ip"
			for range calls {
				m.OnDecision(d)
			}
		})
	}
	for range 50 {
		m.Use(two)
		exposed(t, m, "decisions")
		m.Use(one)
	}
	callersDone.Wait()
	require.Equal(t, []string{
		`decisions_total{outcome="allowed",policy="a",source="store"} 4000`,
		`decisions_total{outcome="allowed",policy="b",source="store"} 4000`,
		`decisions_total{outcome="shadow-denied",policy="a",source="store"} 4000`,
		`decisions_total{outcome="shadow-denied",policy="b",source="store"} 4000`,
		`missing_keys_total{attribute="ip",policy="a"} 4000`,
		`missing_keys_total{attribute="ip",policy="b"} 4000`,
	}, happened(t, m, "decisions", "missing"))
}

func BenchmarkOnDecision(b *testing.B) {
	m := metrics.New(metrics.Options{})
	s := set(b, "one", "two", "shady")
	m.Use(s)
	d := decision(s, true, check(s.Policies()[0], ratelimit.Admitted, ratelimit.FromStore), check(s.Policies()[1], ratelimit.Admitted, ratelimit.FromStore))
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			m.OnDecision(d)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				m.OnDecision(d)
			}
		})
	})
}
