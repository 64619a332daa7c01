package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// TestZonePartitioned cuts off a zone with one of four primaries, and lets it come back. The other zone has the majority and promotes its replica.
func TestZonePartitioned(t *testing.T) {
	network := redistest.StartNetwork(t)
	cluster := redistest.StartCluster(t, redistest.Options{Network: network})
	// With two primaries in each zone, neither side of a partition would have a majority.
	_, err := cluster.Failover(t.Context(), cluster.Nodes[3])
	require.NoError(t, err)
	l := newLab(t, labSetup{cluster: cluster})
	for shard := range shards {
		zone := "a"
		if shard == victim {
			zone = "b"
		}
		require.Equal(t, zone, l.primary(shard).Zone)
	}
	l.warm()
	load := l.start(l.mix)
	time.Sleep(before)
	old := l.primary(victim)
	cut := load.Mark("zone b cut off")
	require.NoError(t, cluster.CutOff(t.Context()))
	_, err = cluster.AwaitPromotion(t.Context(), old)
	require.NoError(t, err)
	promoted := load.Mark("promoted")
	time.Sleep(after)
	rejoined := load.Mark("zone b is back")
	require.NoError(t, cluster.Rejoin(t.Context()))
	require.NoError(t, cluster.WaitReady(t.Context()))
	load.Mark("all in step")
	time.Sleep(after)
	r := load.Stop()
	l.requireSteady(r, faults.Span{From: cut, To: promoted}, victim, unseenAt(r, cut))
	back := r.Between(faults.Span{From: promoted + time.Second, To: load.Now()})
	l.requireInTime(r, back.CheckUntouched(faults.Span{From: rejoined - promoted - time.Second, To: load.Now()}, others(-1)...))
}
