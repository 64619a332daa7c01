package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
)

// before and after are for how long the load runs before a fault, and after it.
const (
	before = 700 * time.Millisecond
	after  = 1600 * time.Millisecond
)

// TestPrimaryKilled: kill -9 of a primary. Its keys are answered by the failure modes until the cluster has promoted the replica, and by the store
// within a second after; the other shards feel nothing.
func TestPrimaryKilled(t *testing.T) {
	l := newLab(t, labSetup{cluster: shared.Cluster(t)})
	l.warm()
	load := l.start(l.mix)
	time.Sleep(before)
	old := l.primary(victim)
	killed := load.Mark("kill -9")
	old.Kill()
	_, err := l.cluster.AwaitPromotion(t.Context(), old)
	require.NoError(t, err)
	promoted := load.Mark("promoted")
	time.Sleep(after)
	r := load.Stop()
	l.requireSteady(r, faults.Span{From: killed, To: promoted}, victim, unseenAt(r, killed))
}

// unseenAt is how much the replica of the victim has not seen, at most, of what was taken from the scarce bucket until the primary was gone. The
// primary sends what it has counted at once: the replica has seen all but the last of it.
func unseenAt(r *faults.Record, gone time.Duration) int {
	return admittedIn(faults.Span{From: gone - 300*time.Millisecond, To: gone + 500*time.Millisecond}, r, victim, "scarce")
}

// TestPrimaryPaused: SIGSTOP of a primary, for less time than the cluster waits before it promotes the replica, and SIGCONT.
func TestPrimaryPaused(t *testing.T) {
	l := newLab(t, labSetup{cluster: shared.Cluster(t)})
	l.warm()
	load := l.start(l.mix)
	time.Sleep(before)
	node := l.primary(victim)
	stopped := load.Mark("SIGSTOP")
	require.NoError(t, node.Pause())
	time.Sleep(700 * time.Millisecond)
	require.NoError(t, node.Resume())
	resumed := load.Mark("SIGCONT")
	time.Sleep(after)
	l.requireSteady(load.Stop(), faults.Span{From: stopped, To: resumed}, victim, 0)
}
