package faults_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// paired have two buckets for each call about a tenant, in one slot.
const paired = `
domain: edge
policies:
  - {id: first, key: [tenant], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: closed}
  - {id: second, key: [tenant], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: closed}
`

// TestResharded moves slots of one primary to others under load, bucket by bucket, so that calls about two of them are told ASK, TRYAGAIN and MOVED.
// Only a slot that stays half moved is felt. Every call that was admitted is counted once for each bucket.
func TestResharded(t *testing.T) {
	cluster := shared.Cluster(t)
	l := newLab(t, labSetup{cluster: cluster, policies: paired})
	moving := 3
	if long() {
		moving = 10
	}
	l.warm()
	load := l.start(l.pairs)
	r, s := l.suffer(load, "slots move", func() { l.moveAway(load, moving) })
	l.show(r)
	t.Logf("the store decides about shard %d again %v after it can", victim, r.Again(s.To, victim))
	l.require(r.CheckAnswered(), r.CheckModes(), r.CheckTrace(s, victim), r.CheckAgain(s.To, victim, time.Second))
	l.requireInTime(r, r.CheckInTime(storeTimeout), r.CheckAlone(s.To, victim, 500*time.Millisecond), r.CheckUntouched(s, others(victim)...))
	l.requireCounted(r)
	l.moveBack(load, moving)
}

// pairs asks about all tenants in turn, each with two buckets.
func (l *lab) pairs(n int) faults.Call {
	tenant := l.tenants[n%shards][n/shards%tenantsPer]
	return faults.Call{Shard: n % shards, Policy: "paired", Mode: "closed", Request: harness.Attributes("tenant", tenant)}
}

// moveAway moves the slots of the victim's first tenants to the other primaries, each half for a moment.
func (l *lab) moveAway(load *faults.Load, tenants int) {
	l.Helper()
	for n, tenant := range l.tenants[victim][:tenants] {
		l.move(load, tenant, others(victim)[n%3], true)
	}
}

// moveBack undoes it.
func (l *lab) moveBack(load *faults.Load, tenants int) {
	l.Helper()
	for _, tenant := range l.tenants[victim][:tenants] {
		l.move(load, tenant, victim, false)
	}
}

// move moves the slot of a tenant to the primary that a shard has. If asked to, it lets the slot stay half moved for a moment.
func (l *lab) move(load *faults.Load, tenant string, shard int, slowly bool) {
	l.Helper()
	first := policy.NewKey(policy.Part{Name: "tenant", Value: tenant}, "first").String()
	m, err := l.cluster.MigrateSlot(l.Context(), harness.Slot(first), l.primary(shard))
	require.NoError(l, err)
	if slowly {
		require.NoError(l, m.Move(l.Context(), first))
		load.Mark("half moved")
		time.Sleep(100 * time.Millisecond)
	}
	require.NoError(l, m.Finish(l.Context()))
}

// requireCounted checks that both buckets were charged what was admitted, and no more than that and what the service does not know of.
func (l *lab) requireCounted(r *faults.Record) {
	l.Helper()
	s := openStore(l.T, l.cluster)
	got := map[string]float64{}
	for _, tenant := range slices.Concat(l.tenants[:]...) {
		for _, id := range []string{"first", "second"} {
			got[id] += charged(l.T, s, bucket(tenant, id, ample(), ratelimit.Peek))
		}
	}
	all := r.Select(always)
	admitted := float64(faults.Count(all, func(d *faults.Decision) bool { return d.Allowed }))
	unknown := float64(faults.Count(all, (*faults.Decision).ByMode))
	l.Logf("%.0f admitted, %.0f not decided by the store; charged: %v", admitted, unknown, got)
	for id, charged := range got {
		require.InDelta(l, admitted+unknown/2, charged, unknown/2+1, id)
	}
}

// patientLab is one whose cluster has the timeout that is Redis's default: nobody is promoted soon.
func patientLab(t *testing.T) *lab {
	t.Helper()
	return newLab(t, labSetup{cluster: redistest.StartCluster(t, redistest.Options{NodeTimeout: 15 * time.Second})})
}

// flap stops the victim's primary and lets it go on, a number of times. The spans are those in which it stood still.
func (l *lab) flap(load *faults.Load, times int, down, up time.Duration) []faults.Span {
	l.Helper()
	node := l.primary(victim)
	var spans []faults.Span
	for range times {
		s := faults.Span{From: load.Mark("SIGSTOP")}
		require.NoError(l, node.Pause())
		time.Sleep(down)
		require.NoError(l, node.Resume())
		s.To = load.Mark("SIGCONT")
		spans = append(spans, s)
		time.Sleep(up)
	}
	return spans
}

// TestFlapping: a primary that stands still and goes on again and again. Each time its keys are answered by the failure modes, and by the store again.
func TestFlapping(t *testing.T) {
	times, down, up := 3, 500*time.Millisecond, 900*time.Millisecond
	if long() {
		times, down, up = 15, 2*time.Second, 2*time.Second
	}
	l := patientLab(t)
	l.warm()
	load := l.start(l.mix)
	time.Sleep(before)
	spans := l.flap(load, times, down, up)
	r := load.Stop()
	for _, s := range spans[:times-1] {
		part := r.Between(faults.Span{From: s.From - up/2, To: s.To + up})
		trouble := faults.Span{From: up / 2, To: up/2 + s.To - s.From}
		t.Logf("the store decides again %v after it can", part.Again(trouble.To, victim))
		l.require(part.CheckTrace(trouble, victim), part.CheckAgain(trouble.To, victim, up-100*time.Millisecond))
		l.requireInTime(part, part.CheckUntouched(trouble, others(victim)...))
	}
	last := spans[times-1]
	r = r.Between(faults.Span{From: 0, To: last.To + up})
	l.show(r)
	l.require(r.CheckAnswered(), r.CheckModes(), r.CheckTrace(last, victim), r.CheckAgain(last.To, victim, up-100*time.Millisecond))
	l.requireInTime(r, r.CheckInTime(storeTimeout))
	for shard := range shards {
		l.requireBound("scarce bucket", admitted(r, shard, "scarce"), scarcity)
	}
}
