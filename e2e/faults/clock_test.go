package faults_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// labAhead is one in which the clock of the victim's primary is an hour ahead of all others.
func labAhead(t *testing.T) *lab {
	t.Helper()
	l := newLab(t, labSetup{cluster: shared.Cluster(t)})
	old := l.primary(victim)
	require.NoError(t, old.SetClock(time.Hour))
	t.Cleanup(func() { require.NoError(t, old.SetClock(0)) })
	require.NoError(t, l.cluster.WaitReady(t.Context()))
	return l
}

// TestPrimaryAheadKilled: kill -9 of a primary whose clock is an hour ahead of its replica's.
func TestPrimaryAheadKilled(t *testing.T) {
	l := labAhead(t)
	l.warm()
	r, s := l.suffer(l.start(l.mix), "kill -9", l.killVictim)
	l.requireSteady(r, s, victim, unseenAt(r, s.From))
}

// TestClocksAnHourApart drains buckets on a primary, lets its replica take over whose clock is an hour behind, or ahead, and goes on as long as
// the clocks take for ten minutes, and on the first one again. At most two more are admitted than the rate allows, or once a capacity.
func TestClocksAnHourApart(t *testing.T) {
	cluster := redistest.StartCluster(t, redistest.Options{MovingClock: true, Config: []string{"repl-timeout 36000"}})
	s := openStore(t, cluster)
	const hour, minutes = time.Hour, 10
	step := 5 * time.Second
	if long() {
		step = time.Second
	}
	for shard, test := range []struct {
		name           string
		first, replica time.Duration // how far their clocks are ahead
		bound          float64       // beyond what was there and the rate
	}{
		{"ahead to behind and back", hour, 0, 2},
		{"behind to ahead and back", 0, hour, 100 + 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newPair(t, cluster, shard)
			p.setNodeTimeout(time.Hour)
			p.set(test.first, test.replica)
			tokens := bucket(tenantOf(shard, "tokens"), "tokens", tokenBucket(100, 6), ratelimit.Take)
			log := bucket(tenantOf(shard, "log"), "log", slidingLog(100, 10*time.Minute), ratelimit.Take)
			began, got := time.Now(), map[string]int{}
			try := func() {
				for name, b := range map[string]ratelimit.Bucket{"token bucket": tokens, "sliding log": log} {
					for acquire(t, s, b).Outcome == ratelimit.Admitted {
						got[name]++
					}
				}
			}
			try()
			require.InDelta(t, 100, got["token bucket"], 1+6*time.Since(began).Minutes())
			require.Equal(t, 100, got["sliding log"])

			p.failover()
			for passed := step; passed <= minutes*time.Minute; passed += step {
				p.set(test.first+passed, test.replica+passed)
				try()
			}
			p.failover()
			try()
			for name, n := range got {
				// In ten minutes 60 tokens come back, and more for the time that the test itself takes; of the log, all 100 entries leave at its end.
				allowed := map[string]float64{"token bucket": 6 * (minutes + time.Since(began).Minutes()), "sliding log": 100}[name]
				t.Logf("%s: %d admitted, %d at first, at most %.0f by the rate and %.0f beyond", name, n, 100, allowed, test.bound)
				require.LessOrEqual(t, float64(n), 100+allowed+test.bound, name)
				require.GreaterOrEqual(t, float64(n), 100+6*minutes-2., "%s: it does refill", name)
			}
		})
	}
}

// pair is a primary and its replica, whose clocks are moved.
type pair struct {
	*testing.T
	cluster *redistest.Cluster
	nodes   [2]*redistest.Server // the one that is primary at first, and the other
	primary int                  // which of the two is
}

func newPair(t *testing.T, cluster *redistest.Cluster, shard int) *pair {
	t.Helper()
	primary, err := cluster.Owner(t.Context(), shard*slotsPer)
	require.NoError(t, err)
	replicas, err := cluster.Replicas(t.Context(), primary)
	require.NoError(t, err)
	return &pair{T: t, cluster: cluster, nodes: [2]*redistest.Server{primary, replicas[0]}}
}

// set says how far the clocks are ahead.
func (p *pair) set(first, second time.Duration) {
	p.Helper()
	require.NoError(p, p.nodes[0].SetClock(first))
	require.NoError(p, p.nodes[1].SetClock(second))
}

// setNodeTimeout says after which silence a node gives up another. Minutes pass in seconds here, which no node may take for that.
func (p *pair) setNodeTimeout(d time.Duration) {
	p.Helper()
	setNodeTimeout(p.T, p.cluster, d)
}

// setNodeTimeout does so for any cluster. A node that is started later has what it is configured with.
func setNodeTimeout(t *testing.T, cluster *redistest.Cluster, d time.Duration) {
	t.Helper()
	for _, node := range cluster.Nodes {
		if node.Running() {
			_, err := node.Do(context.Background(), "CONFIG", "SET", "cluster-node-timeout", d.Milliseconds())
			require.NoError(t, err)
		}
	}
}

// failover makes the other one the primary. All nodes learn of it soon, since they ask each other often meanwhile.
func (p *pair) failover() {
	p.Helper()
	p.setNodeTimeout(5 * time.Second)
	defer p.setNodeTimeout(time.Hour)
	require.NoError(p, p.cluster.WaitReady(p.Context()))
	promoted, err := p.cluster.Failover(p.Context(), p.nodes[p.primary])
	require.NoError(p, err)
	p.primary = 1 - p.primary
	require.Same(p, p.nodes[p.primary], promoted)
}
