package faults_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// hundred has a bucket of which every instance may admit its share.
const hundred = mixed + `
  - {id: hundred, match: {mode: hundred}, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: local}
`

// four starts four instances on one server, each of which knows of the others.
func four(t *testing.T, timeout time.Duration) (*lab, *redistest.Server) {
	t.Helper()
	server := redistest.StartStandalone(t)
	l := newLab(t, labSetup{server: server, instances: 4, timeout: timeout, policies: hundred})
	l.warm()
	l.meet()
	return l, server
}

// meet waits until each instance knows of all others: the shares of a limit sum to it from then on.
func (l *lab) meet() {
	l.Helper()
	all := float64(len(l.fleet) * len(l.fleet))
	require.Eventually(l, func() bool { return l.sum("envoy_rls_instances") == all }, patience, 50*time.Millisecond, "they do not know of each other")
}

// TestField_FourInstancesWithoutRedis: four instances share a bucket of 100 whose Redis is killed. Of one that nobody had spent from they admit 100 in
// all, of one that they had seen no more than their shares of what they had seen, and nothing more as time goes by.
func TestField_FourInstancesWithoutRedis(t *testing.T) {
	l, server := four(t, patientTimeout)
	const spent = 41
	for n := range spent {
		require.True(t, l.is(n, "mode", "hundred", "tenant", "seen").Allowed)
	}
	server.Kill()
	l.feels(victim)
	bound, told := 0, ""
	for n := spent - 4; n < spent; n++ { // the last call of each instance
		left := 100 - n - 1
		bound += left / 4
		told += fmt.Sprintf(" floor(%d/4)", left)
	}
	l.requireBound("never seen", l.drain("mode", "hundred", "tenant", "unseen"), 100)
	got := l.drain("mode", "hundred", "tenant", "seen")
	t.Logf("seen: the sum of%s", told)
	l.requireBound("seen", got, float64(bound))
	require.Positive(t, got, "the shares are not used")
	time.Sleep(time.Second)
	require.Zero(t, l.drain("mode", "hundred", "tenant", "seen")+l.drain("mode", "hundred", "tenant", "unseen"), "after a while")
}

// TestField_FourInstancesFlapping: Redis stands still and goes on again and again, while four instances are asked for all that a bucket has. In all
// they admit at most two capacities.
func TestField_FourInstancesFlapping(t *testing.T) {
	times, down, up := 5, 300*time.Millisecond, 400*time.Millisecond
	if long() {
		times, down, up = 15, 2*time.Second, 2*time.Second
	}
	l, server := four(t, storeTimeout)
	// One bucket is drained before the first outage, one slowly, over several, and one anew as each of them begins.
	var outages atomic.Int64
	load := l.start(func(n int) faults.Call {
		tenant := fmt.Sprint("outage-", outages.Load())
		switch turn := n / 4; {
		case turn%20 == 0:
			tenant = "slowly"
		case turn%5 == 0:
			tenant = "before"
		case turn%5 == 1:
			tenant = fmt.Sprint("outage-", max(0, outages.Load()-1))
		}
		return faults.Call{Policy: tenant, Mode: "local", Request: harness.Attributes("mode", "hundred", "tenant", tenant)}
	})
	time.Sleep(up)
	s := faults.Span{From: load.Now()}
	for range times {
		load.Mark("SIGSTOP")
		outages.Add(1)
		require.NoError(t, server.Pause())
		time.Sleep(down)
		require.NoError(t, server.Resume())
		s.To = load.Mark("SIGCONT")
		time.Sleep(up)
	}
	r := load.Stop()
	l.show(r)
	l.require(r.CheckAnswered(), r.CheckModes(), r.CheckTrace(s, 0), r.CheckAgain(s.To, 0, up/2))
	l.requireInTime(r, r.CheckInTime(storeTimeout))
	tenants := []string{"before", "slowly"}
	for n := range times + 1 {
		tenants = append(tenants, fmt.Sprint("outage-", n))
	}
	for _, tenant := range tenants {
		got := admitted(r, 0, tenant)
		l.requireBound(tenant, got, 200)
		require.GreaterOrEqual(t, got, 97, "%s: it was never drained", tenant)
	}
}

// TestSharesOfAnEmptyRestart: each time that Redis comes back without its data admits at most one capacity more, though instances admit by their
// shares while it is away.
func TestSharesOfAnEmptyRestart(t *testing.T) {
	l, server := four(t, patientTimeout)
	total := l.drain("mode", "hundred", "tenant", "acme")
	for n := range 3 {
		server.Kill()
		l.feels(victim)
		total += l.drain("mode", "hundred", "tenant", "acme")
		require.NoError(t, server.Restart(t.Context()))
		l.warm()
		time.Sleep(1100 * time.Millisecond) // for as long a denial may be remembered
		total += l.drain("mode", "hundred", "tenant", "acme")
		l.requireBound(fmt.Sprint("after restart ", n+1), total, float64(100*(n+2)))
	}
	require.Greater(t, total, 100, "the data was not lost")
}
