package faults_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
)

// TestPrimaryKilled: kill -9 of a primary. Its keys are answered by the failure modes until the cluster has promoted the replica, and by the store
// within a second after; the other shards feel nothing.
func TestPrimaryKilled(t *testing.T) {
	l := newLab(t, labSetup{cluster: shared.Cluster(t)})
	l.warm()
	r, s := l.suffer(l.start(l.mix), "kill -9", l.killVictim)
	l.requireSteady(r, s, victim, unseenAt(r, s.From))
}

// TestPrimaryPaused: SIGSTOP of a primary, for less time than the cluster waits before it promotes the replica, and SIGCONT.
func TestPrimaryPaused(t *testing.T) {
	l := newLab(t, labSetup{cluster: shared.Cluster(t)})
	l.warm()
	r, s := l.suffer(l.start(l.mix), "SIGSTOP", l.pauseVictim)
	l.requireSteady(r, s, victim, 0)
}

// before and after are for how long the load runs before a fault, and after it.
const (
	before = 700 * time.Millisecond
	after  = 1600 * time.Millisecond
)

// suffer has a load go on for a while, through a fault, and for a while after it. fault returns as soon as the store can decide again. The span is
// that of the fault.
func (l *lab) suffer(load *faults.Load, name string, fault func()) (*faults.Record, faults.Span) {
	l.Helper()
	time.Sleep(before)
	s := faults.Span{From: load.Mark(name)}
	fault()
	s.To = load.Mark("the store can decide again")
	time.Sleep(after)
	return load.Stop(), s
}

// killVictim kills the victim's primary and waits for another.
func (l *lab) killVictim() {
	l.Helper()
	old := l.primary(victim)
	old.Kill()
	_, err := l.cluster.AwaitPromotion(l.Context(), old)
	require.NoError(l, err)
}

// pauseVictim stops the victim's primary for less time than the cluster waits before it promotes a replica, even if the machine is slow to let it go on.
func (l *lab) pauseVictim() {
	l.Helper()
	setNodeTimeout(l.T, l.cluster, 15*time.Second)
	l.Cleanup(func() { setNodeTimeout(l.T, l.cluster, nodeTimeout) })
	node := l.primary(victim)
	require.NoError(l, node.Pause())
	time.Sleep(700 * time.Millisecond)
	require.NoError(l, node.Resume())
}

// unseenAt is how much the replica of the victim has not seen, at most, of what was taken from the scarce bucket until the primary was gone. The
// primary sends what it has counted at once: the replica has seen all but the last of it.
func unseenAt(r *faults.Record, gone time.Duration) int {
	return admittedIn(faults.Span{From: gone - 300*time.Millisecond, To: gone + 500*time.Millisecond}, r, victim, "scarce")
}
