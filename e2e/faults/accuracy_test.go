package faults_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// These tests judge what callers of the service are told, by package accuracy, on each configuration and under each fault, with the bound that is
// stated for it. ENVOY_RLS_ACCURACY=10m says for how long each of them calls. Those with servers of their own run beside each other.

// TestExactInMemory: one instance that keeps its buckets itself.
func TestExactInMemory(t *testing.T) {
	t.Parallel()
	policies := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(policies, []byte(exact), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	i, err := harness.StartInstance(ctx, service, []string{"serve", "--policies", policies, "--drain-delay", "0s"}, nil)
	require.NoError(t, err)
	t.Cleanup(i.Stop)
	e := newExactness(&lab{T: t, fleet: []*harness.Instance{i}}, false)
	e.requireExact(e.run(nothing))
}

func nothing() {}

// TestExactOnOneServer: two instances on one Redis.
func TestExactOnOneServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, labSetup{server: redistest.StartStandalone(t), policies: exact, timeout: patientTimeout})
	l.warm()
	l.meet()
	e := newExactness(l, false)
	e.requireExact(e.run(nothing))
}

// exactLab is a lab of three instances. The store has as much time as a busy machine mostly needs, and not so much that a pause would not be felt.
func exactLab(t *testing.T, s labSetup) *exactness {
	t.Helper()
	s.policies, s.timeout, s.instances = exact, 300*time.Millisecond, 3
	l := newLab(t, s)
	l.warm()
	l.meet()
	return newExactness(l, true)
}

// TestExactOnACluster: three instances on a cluster.
func TestExactOnACluster(t *testing.T) {
	e := exactLab(t, labSetup{cluster: shared.Cluster(t)})
	e.requireExact(e.run(nothing))
}

// reconciling is how long after a fault instances may take to have the store charged with what they have admitted by their shares.
const reconciling = 3 * time.Second

// ofVictim are the buckets of the victim's shard, which may get so many capacities that are not due to them. Shares are judged by themselves.
func ofVictim(capacities float64) func(shard, kind int) (float64, bool) {
	return func(shard, _ int) (float64, bool) { return capacities, shard == victim }
}

// TestExactWhenAPrimaryIsKilled: kill -9 of a primary, whose replica takes over. It may not have seen the last charges: at most a capacity more.
func TestExactWhenAPrimaryIsKilled(t *testing.T) {
	e := exactLab(t, labSetup{cluster: shared.Cluster(t)})
	e.requireExactShares(e.run(func() { e.lasts("kill -9", reconciling, ofVictim(1), e.killVictim) }))
}

// TestExactWhenAPrimaryIsPaused: SIGSTOP and SIGCONT of a primary. Nothing is admitted beyond the limit but by shares.
func TestExactWhenAPrimaryIsPaused(t *testing.T) {
	e := exactLab(t, labSetup{cluster: shared.Cluster(t)})
	e.requireExactShares(e.run(func() { e.lasts("SIGSTOP", reconciling, ofVictim(0), e.pauseVictim) }))
}

// TestExactWhenRepliesAreLost: what a primary says does not arrive, while it does what it is told.
func TestExactWhenRepliesAreLost(t *testing.T) {
	t.Parallel()
	cluster, proxies := behindProxies(t)
	var urls []string
	for _, p := range proxies {
		urls = append(urls, p.URL())
	}
	e := exactLab(t, labSetup{cluster: cluster, urls: urls})
	p := proxies[e.primary(victim)]
	e.requireExactShares(e.run(func() {
		e.lasts("replies lost", reconciling, ofVictim(0), func() {
			p.Lose()
			time.Sleep(500 * time.Millisecond)
			p.Heal()
		})
	}))
}

// TestExactWhenAZoneIsCutOff: the zone of one of four primaries is cut off, and comes back.
func TestExactWhenAZoneIsCutOff(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, redistest.Options{Network: redistest.StartNetwork(t)})
	_, err := cluster.Failover(t.Context(), cluster.Nodes[3]) // or neither side has a majority
	require.NoError(t, err)
	e := exactLab(t, labSetup{cluster: cluster})
	e.requireExactShares(e.run(func() {
		e.lasts("cut off", reconciling, ofVictim(1), func() {
			e.cutOff()
			require.NoError(t, cluster.Rejoin(t.Context()))
			require.NoError(t, cluster.WaitReady(t.Context()))
		})
	}))
}

// TestExactWhenAClockSteps: the clock of a primary steps an hour forward, which fills each of its buckets once, and back, which gives nothing.
func TestExactWhenAClockSteps(t *testing.T) {
	e := exactLab(t, labSetup{cluster: shared.Cluster(t)})
	node := e.primary(victim)
	t.Cleanup(func() { require.NoError(t, node.SetClock(0)) })
	forward := func(shard, _ int) (float64, bool) { return 1, shard == victim }
	back := func(shard, _ int) (float64, bool) { return 0, shard == victim }
	// Until all buckets have been called since a step back, time that they missed is not credited.
	const called = 300 * time.Millisecond
	r := e.run(func() {
		e.lasts("an hour forward", called, forward, func() { require.NoError(t, node.SetClock(time.Hour)) })
		time.Sleep(exactLength() / 2)
		e.lasts("an hour back", called, back, func() { require.NoError(t, node.SetClock(0)) })
	})
	e.requireExact(r)
	r.Faults = nil
	v, err := accuracy.Check(r, accuracy.Options{})
	require.NoError(t, err)
	require.ErrorContains(t, v.Err(), string(accuracy.TooMuch), "if nobody knew of the step, it would be found")
}
