package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// partitionLab is a lab with the victim's primary alone in zone b, the other three in zone a, and each one's replica in the other zone.
func partitionLab(t *testing.T) *lab {
	t.Helper()
	cluster := redistest.StartCluster(t, redistest.Options{Network: redistest.StartNetwork(t)})
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
	return l
}

// cutOff cuts off the zone of the victim's primary, and waits for another.
func (l *lab) cutOff() {
	l.Helper()
	old := l.primary(victim)
	require.NoError(l, l.cluster.CutOff(l.Context()))
	_, err := l.cluster.AwaitPromotion(l.Context(), old)
	require.NoError(l, err)
}

// TestZonePartitioned cuts off a zone with one of four primaries, and lets it come back. The other zone has the majority and promotes its replica.
func TestZonePartitioned(t *testing.T) {
	l := partitionLab(t)
	l.warm()
	load := l.start(l.mix)
	time.Sleep(before)
	cut := load.Mark("zone b cut off")
	l.cutOff()
	promoted := load.Mark("promoted")
	time.Sleep(after)
	rejoined := load.Mark("zone b is back")
	require.NoError(t, l.cluster.Rejoin(t.Context()))
	require.NoError(t, l.cluster.WaitReady(t.Context()))
	load.Mark("all in step")
	time.Sleep(after)
	r := load.Stop()
	l.requireSteady(r, faults.Span{From: cut, To: promoted}, victim, unseenAt(r, cut))
	back := r.Between(faults.Span{From: promoted + time.Second, To: load.Now()})
	l.requireInTime(r, back.CheckUntouched(faults.Span{From: rejoined - promoted - time.Second, To: load.Now()}, others(-1)...))
}
