package faults_test

import (
	"context"
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// partitionLab is a lab with the victim's primary alone in zone b, the other three in zone a, and each one's replica in the other zone.
func partitionLab(t *testing.T) *lab {
	t.Helper()
	return partitionLabOn(t, redistest.StartNetwork(t))
}

func partitionLabOn(t *testing.T, network *redistest.Network) *lab {
	t.Helper()
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

// TestZonePartitioned cuts off a zone with one of four primaries, and an instance, and lets it come back. The other zone has the majority and promotes
// its replica; the instance that is cut off answers by its policies' failure modes.
func TestZonePartitioned(t *testing.T) {
	network := redistest.StartNetwork(t)
	l := partitionLabOn(t, network)
	l.warm()
	away := l.startAway(network)
	load, loadAway := l.start(l.mix), l.startOn(away)
	time.Sleep(before)
	cut, cutAway := load.Mark("zone b cut off"), loadAway.Mark("cut off")
	l.cutOff()
	promoted := load.Mark("promoted")
	time.Sleep(after)
	rejoined := load.Mark("zone b is back")
	require.NoError(t, l.cluster.Rejoin(t.Context()))
	back := loadAway.Mark("back")
	require.NoError(t, l.cluster.WaitReady(t.Context()))
	load.Mark("all in step")
	inStep := loadAway.Mark("all in step")
	time.Sleep(after)
	r, rAway := load.Stop(), loadAway.Stop()

	// Until it knows that it is alone, the primary that is cut off admits what its replica does not hear of any more.
	unseen := unseenAt(r, cut) + admittedIn(faults.Span{From: cutAway, To: back}, rAway, victim, "scarce")
	l.requireSteady(r, faults.Span{From: cut, To: promoted}, victim, unseen)
	for shard := range shards {
		bound := scarcity
		if shard == victim {
			bound += unseen
		}
		l.requireBound(fmt.Sprint("scarce bucket on shard ", shard, ", both zones"), admitted(r, shard, "scarce")+admitted(rAway, shard, "scarce"), float64(bound))
	}
	rejoining := r.Between(faults.Span{From: promoted + time.Second, To: load.Now()})
	l.requireInTime(r, rejoining.CheckUntouched(faults.Span{From: rejoined - promoted - time.Second, To: load.Now()}, others(-1)...))

	l.show(rAway)
	l.require(rAway.CheckAnswered(), rAway.CheckModes())
	l.requireInTime(rAway, rAway.CheckInTime(storeTimeout))
	for shard := range shards {
		l.require(rAway.CheckTrace(faults.Span{From: cutAway, To: back}, shard), rAway.CheckAgain(inStep, shard, time.Second))
		l.requireInTime(rAway, rAway.CheckAlone(inStep, shard, time.Second))
	}
}

// startAway starts an instance in zone b.
func (l *lab) startAway(network *redistest.Network) *harness.Instance {
	l.Helper()
	i, err := harness.StartInstanceAt(l.Context(), network.Away(), func(args ...string) *exec.Cmd {
		return network.Command("b", service, args...)
	}, l.args, l.env)
	require.NoError(l, err)
	l.Cleanup(i.Stop)
	l.warmOne(i)
	return i
}

// startOn begins to ask one instance alone, at a part of the pace.
func (l *lab) startOn(i *harness.Instance) *faults.Load {
	l.Helper()
	load := faults.StartLoad(faults.LoadOptions{
		PerSecond: perSecond / 4, Next: l.mix,
		Ask: func(ctx context.Context, n int, c faults.Call) (harness.Answer, error) {
			return i.Ask(ctx, n, c.Request)
		},
	}, l.witness)
	l.Cleanup(func() { load.Stop() })
	return load
}
