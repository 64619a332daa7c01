package app

import (
	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
)

// redisStatus joins what the store and the breakers know of its nodes.
func (a *App) redisStatus() *admin.RedisStatus {
	s := &admin.RedisStatus{Nodes: []admin.NodeStatus{}, MayEvict: a.eviction.mayEvict(), Instances: a.shared.Fleet.Instances().Count}
	at := map[string]int{}
	add := func(n admin.NodeStatus) int {
		if i, ok := at[n.Node]; ok {
			return i
		}
		at[n.Node] = len(s.Nodes)
		s.Nodes = append(s.Nodes, n)
		return at[n.Node]
	}
	for _, n := range a.shared.Redis.Nodes() {
		add(admin.NodeStatus{Node: n.Address, Connected: n.Connected, Queued: n.Queued, Breaker: fallback.StateClosed.String()})
	}
	for _, f := range a.shared.Fallback.Shards() {
		n := &s.Nodes[add(admin.NodeStatus{Node: f.Shard})]
		n.Breaker, n.Reason, n.Since = f.State.String(), f.Reason, &f.Since
		if !f.Next.IsZero() {
			n.Next = &f.Next
		}
	}
	decide := 0
	for _, n := range s.Nodes {
		if n.Connected && n.Breaker == fallback.StateClosed.String() {
			decide++
		}
	}
	if len(s.Nodes) > 0 {
		s.Available = float64(decide) / float64(len(s.Nodes))
	}
	return s
}

// sharedState is the same for the metrics.
func (a *App) sharedState() metrics.Shared {
	st := a.redisStatus()
	s := metrics.Shared{Nodes: map[string]metrics.NodeState{}, Available: st.Available, MayEvict: st.MayEvict}
	for _, n := range st.Nodes {
		s.Nodes[n.Node] = metrics.NodeState{Queued: n.Queued, Breaker: n.Breaker}
	}
	return s
}
