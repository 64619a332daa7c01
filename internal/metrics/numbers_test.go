package metrics_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func load(t testing.TB, policies string) *policy.Set {
	t.Helper()
	file, err := policy.Parse("policies.yaml", []byte("policies:\n"+policies))
	require.NoError(t, err)
	s, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	return s
}

func TestNumbersOfPolicies(t *testing.T) {
	m := metrics.New(metrics.Options{})
	const overrides = `overrides: [
      {match: {tenant: a}, capacity: 1, comment: over, until: 2001-01-01T00:00:00Z},
      {match: {tenant: b}, capacity: 2, comment: for ever}]`
	m.Use(load(t, "  - {id: tokens, key: [tenant], algorithm: token-bucket, capacity: 20, refillPerMinute: 90, onStoreFailure: open, "+overrides+"}\n"+
		"  - {id: log, key: [], algorithm: sliding-log, limit: 30, window: 1h, onStoreFailure: open}\n"))
	numbers := func() []string {
		return exposed(t, m, "policy_capacity", "policy_refill", "policy_limit", "policy_window", "policy_overrides")
	}
	require.Equal(t, []string{
		`policy_capacity{policy="tokens"} 20`,
		`policy_limit{policy="log"} 30`,
		`policy_overrides{policy="tokens"} 1`,
		`policy_refill_per_second{policy="tokens"} 1.5`,
		`policy_window_seconds{policy="log"} 3600`,
	}, numbers())

	m.Use(load(t, "  - {id: tokens, key: [tenant], algorithm: sliding-log, limit: 7, window: 10s, onStoreFailure: open}\n"))
	require.Equal(t, []string{`policy_limit{policy="tokens"} 7`, `policy_window_seconds{policy="tokens"} 10`}, numbers(), "of the set in force only")
}

// TestOneVersion: a reload ends the series of the version before it.
func TestOneVersion(t *testing.T) {
	m := metrics.New(metrics.Options{})
	for _, s := range []*policy.Set{set(t, "one", "two"), set(t, "one", "three")} {
		m.Use(s)
		require.Equal(t, []string{`policy_set_info{version="` + s.Version() + `"} 1`}, exposed(t, m, "policy_set_info"))
	}
}

func TestChargedCost(t *testing.T) {
	m := metrics.New(metrics.Options{})
	s := set(t, "first", "second", "shady")
	m.Use(s)
	said := func(i int, o ratelimit.Outcome, op ratelimit.Op, cost, uncharged uint64) ratelimit.Check {
		c := check(s.Policies()[i], o, ratelimit.FromStore)
		c.Op, c.Cost, c.Known, c.Result.Uncharged = op, cost, true, uncharged
		return c
	}
	unknown := said(0, ratelimit.Admitted, ratelimit.Take, 1e6, 0)
	unknown.Known, unknown.Result.Source = false, ratelimit.FromOpen
	for _, d := range []*ratelimit.Decision{
		decision(s, true, said(0, ratelimit.Admitted, ratelimit.Take, 3, 0), said(2, ratelimit.Admitted, ratelimit.Take, 4, 0)),
		decision(s, true, said(0, ratelimit.Admitted, ratelimit.Take, 2, 0), said(2, ratelimit.Denied, ratelimit.Take, 4, 0)),
		decision(s, false, said(0, ratelimit.Admitted, ratelimit.Take, 5, 0), said(1, ratelimit.Denied, ratelimit.Take, 5, 0)), // none of them
		decision(s, false, said(0, ratelimit.Admitted, ratelimit.Force, 50, 10), said(1, ratelimit.Denied, ratelimit.Take, 5, 0)),
		decision(s, true, said(0, ratelimit.Admitted, ratelimit.Peek, 7, 0), said(1, ratelimit.Admitted, ratelimit.Refund, 7, 0)),
		decision(s, true, unknown),
	} {
		m.OnDecision(d)
	}
	require.Equal(t, []string{
		`charged_cost_total{policy="first"} 45`,
		`charged_cost_total{policy="second"} 0`,
		`charged_cost_total{policy="shady"} 4`,
	}, exposed(t, m, "charged"))
}
