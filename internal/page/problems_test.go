package page_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/internal/page"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestProblems(t *testing.T) {
	yes, failed := true, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	redis := func(nodes ...admin.NodeStatus) func(*admin.Status) {
		return func(s *admin.Status) {
			s.Store = admin.StoreStatus{Kind: "redis", Redis: &admin.RedisStatus{Nodes: nodes}}
		}
	}
	tests := []struct {
		name   string
		change func(*admin.Status)
		severe bool
		want   string
	}{
		{"not ready", func(s *admin.Status) { s.Ready, s.NotReady = false, "starting" }, true, "This instance is not ready: starting"},
		{
			"a faulty file", func(s *admin.Status) { s.Policies.Error, s.Policies.FailedAt = "p.yaml:1:1: a fault\nx\n^", &failed }, true,
			"The policies cannot be loaded since 2026-01-02T03:04:05Z: p.yaml:1:1: a fault",
		},
		{"no database", func(s *admin.Status) { s.Policies.Unreachable = "refused" }, false, "The policy database does not answer: refused"},
		{"kept policies", func(s *admin.Status) { s.Policies.Kept = true }, false, "The policies come from this instance's own copy"},
		{
			"a breaker", redis(admin.NodeStatus{Node: "a:1", Connected: true, Breaker: "closed"}, admin.NodeStatus{Node: "b:1", Breaker: "open", Reason: "timeout"}), true,
			"The breaker of store node b:1 is open: timeout",
		},
		{"a node that is not known", redis(admin.NodeStatus{Breaker: "half-open"}), true, "The breaker of store node of some buckets is half-open"},
		{"no connection", redis(admin.NodeStatus{Node: "a:1", Breaker: "closed"}), false, "There is no connection to store node a:1"},
		{"eviction by Redis", func(s *admin.Status) { s.Store.Redis = &admin.RedisStatus{MayEvict: &yes} }, false, "Redis may forget buckets when its memory runs short"},
		{
			"eviction in memory", func(s *admin.Status) { s.Store.MemoryStatus = &admin.MemoryStatus{EvictedBuckets: 7} }, true,
			"The store forgets buckets for want of room, 7 so far",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t, policies, nil)
			require.Empty(t, s.Now().Problems)
			status := *s.status.Load()
			tt.change(&status)
			s.status.Store(&status)
			s.Second(time.Now())
			all := s.Now().Problems
			require.Len(t, all, 1)
			require.Equal(t, tt.want, all[0].What)
			require.Equal(t, tt.severe, all[0].Severe)
			require.NotEmpty(t, all[0].Means)
		})
	}
}

func TestProblemsOfDecisions(t *testing.T) {
	c := metrics.Counts{Policy: "free"}
	s := newService(t, policies, func(o *page.Options) {
		o.Counts = func(dst []metrics.Counts) []metrics.Counts { return append(dst, c) }
	})
	now := time.Now()
	second := func(store, local uint64) []page.Problem {
		c.BySource[ratelimit.FromStore] += store
		c.BySource[ratelimit.FromLocal] += local
		now = now.Add(time.Second)
		s.Second(now)
		return s.Now().Problems
	}
	require.Empty(t, second(0, 0))
	require.Empty(t, second(1000, 0))
	all := second(900, 100)
	require.Len(t, all, 1)
	require.Equal(t, "5.0 % of the decisions of the last 10 s were made without the store", all[0].What)
	require.InDelta(t, 0.95, *s.Now().Now.StoreShare, 1e-9)
	for range 9 {
		all = second(1, 0)
	}
	require.Len(t, all, 1)
	require.Empty(t, second(1, 0), "after ten seconds it is over")
}

func TestProblemsOfInstances(t *testing.T) {
	all := []page.Instance{{Name: "a", Policies: "1"}, {Name: "b", Policies: "1"}}
	s := newService(t, policies, func(o *page.Options) { o.Instances = func() []page.Instance { return all } })
	require.Empty(t, s.Now().Problems)
	all[1].Policies = "2"
	s.Second(time.Now())
	require.Equal(t, "Instances have different policies in force: 2 versions", s.Now().Problems[0].What)
	all[1] = page.Instance{Name: "b", Policies: "1", Failing: true}
	s.Second(time.Now())
	require.Equal(t, "Instance b cannot load newer policies", s.Now().Problems[0].What)
}

func TestProblemsOfTraffic(t *testing.T) {
	s := newService(t, policies, nil)
	now := time.Now()
	s.Second(now)
	s.call(t, 30, "plan", "free", "api_key", "k", "tenant", "t")
	s.callDomain(t, 1, "egde", []string{"a", "b"})
	s.Second(now.Add(time.Second))
	all := s.Now().Problems
	require.Len(t, all, 2)
	require.Equal(t, "87 % of the requests are denied", all[0].What)
	require.Equal(t, `Requests come in domain "egde": no policy file serves this domain; did you mean "edge"?`, all[1].What)
}
