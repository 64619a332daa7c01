package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// budget is a prepaid policy beside one with an overdraft, both of alice's.
const budget = `
domain: edge
policies:
  - {id: strict, match: {user: "*"}, key: [user], algorithm: token-bucket, capacity: 100, refillPerSecond: 1, onStoreFailure: open}
  - {id: loose, match: {user: "*"}, key: [user], algorithm: token-bucket, capacity: 200, refillPerSecond: 1, charge: postpaid, overdraft: 50, onStoreFailure: open}
`

func (d *door) reserve(cost uint64) *ratelimit.Reservation {
	d.t.Helper()
	r, err := d.Reserve(d.t.Context(), alice(cost))
	require.NoError(d.t, err)
	return r
}

func TestReserve(t *testing.T) {
	tests := []struct {
		name             string
		estimate, actual uint64
		later            time.Duration // between the two
		strict, loose    float64       // left in the end
		uncharged        uint64
	}{
		{"as estimated", 60, 60, 0, 40, 140, 0},
		{"less", 60, 10, 0, 90, 190, 0},
		{"nothing", 60, 0, 0, 100, 200, 0},
		{"more", 60, 90, 0, 10, 110, 0},
		{"more than there is", 60, 130, 0, 0, 70, 30},
		{"into debt", 60, 240, 0, 0, -40, 140},
		{"beyond debt", 60, 260, 0, 0, -50, 160},
		{"beyond all numbers", 60, math.MaxUint64, 0, 0, -50, math.MaxUint64 - 100},
		{"the refill meanwhile pays", 60, 130, 20 * time.Second, 0, 90, 10},
		{"less, and a refill meanwhile", 60, 20, 10 * time.Second, 90, 190, 0},
		{"a refill that ran into the brim is not paid twice", 60, 10, time.Hour, 100, 200, 0},
		{"one that ran into it partly", 60, 20, 70 * time.Second, 100, 200, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDoor(t, budget)
			r := d.reserve(tt.estimate)
			require.True(t, r.Decision.Allowed)
			require.Equal(t, 100-float64(tt.estimate), d.left("strict"))
			d.pass(tt.later)
			got, err := r.Commit(t.Context(), tt.actual)
			require.NoError(t, err)
			require.True(t, got.Allowed)
			require.Equal(t, tt.uncharged, got.Uncharged())
			require.Equal(t, tt.strict, d.left("strict"))
			require.Equal(t, tt.loose, d.left("loose"))
			for _, c := range got.Checks {
				require.Equal(t, map[string]float64{"strict": tt.strict, "loose": tt.loose}[c.Policy.ID], c.Result.Remaining)
			}

			_, err = r.Commit(t.Context(), 0)
			require.ErrorIs(t, err, ratelimit.ErrSettled)
			r.Cancel(t.Context())
			require.Equal(t, tt.strict, d.left("strict"), "a second one does nothing")
		})
	}
}

// TestReserveGivesBackExactly: the bucket ends as if only the actual cost had been taken, though others took and refilled meanwhile.
func TestReserveGivesBackExactly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		real, ideal := newDoor(t, budget), newDoor(t, budget)
		pass := func(most int) {
			by := time.Duration(rapid.IntRange(0, most).Draw(rt, "ms")) * time.Millisecond
			real.pass(by)
			ideal.pass(by)
		}
		take := func(on *door, n uint64) bool { return on.reserve(n).Decision.Allowed }
		estimate := rapid.Uint64Range(1, 100).Draw(rt, "estimate")
		actual := rapid.Uint64Range(0, estimate).Draw(rt, "actual")
		r := real.reserve(estimate)
		if actual > 0 {
			require.True(rt, take(ideal, actual))
		}
		pass(100_000)
		alone := true
		if other := rapid.Uint64Range(1, 200).Draw(rt, "other"); take(real, other) {
			require.True(rt, take(ideal, other), "what fits beside the estimate fits beside the actual cost")
			alone = false
		}
		pass(100_000)
		_, err := r.Commit(t.Context(), actual)
		require.NoError(rt, err)
		for _, id := range []string{"strict", "loose"} {
			got, most := real.left(id), ideal.left(id)
			require.LessOrEqual(rt, got, most+1e-6, "never too many")
			if alone {
				require.InDelta(rt, most, got, 1e-6)
			}
		}
	})
}

func TestReservationDenied(t *testing.T) {
	d := newDoor(t, budget)
	r := d.reserve(101)
	require.False(t, r.Decision.Allowed)
	_, err := r.Commit(t.Context(), 5)
	require.ErrorIs(t, err, ratelimit.ErrNotReserved)
	r.Cancel(t.Context())
	require.Equal(t, 100.0, d.left("strict"))
	require.Equal(t, 200.0, d.left("loose"))
}

func TestReservationAbandonedStaysCharged(t *testing.T) {
	d := newDoor(t, budget)
	d.reserve(60)
	require.Equal(t, 40.0, d.left("strict"))
}

func TestCancel(t *testing.T) {
	d := newDoor(t, budget)
	r := d.reserve(60)
	r.Cancel(t.Context())
	require.Equal(t, 100.0, d.left("strict"))
	require.Equal(t, 200.0, d.left("loose"))
	_, err := r.Commit(t.Context(), 60)
	require.ErrorIs(t, err, ratelimit.ErrSettled)
}

// TestCommitAfterTheEnd: a client that hangs up pays what it took, and gets back what it did not take.
func TestCommitAfterTheEnd(t *testing.T) {
	d := newDoor(t, budget)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := d.reserve(20), d.reserve(60)
	cancel()
	got, err := first.Commit(ctx, 30)
	require.NoError(t, err)
	require.Len(t, got.Checks, 2)
	require.Equal(t, 10.0, d.left("strict"))
	second.Cancel(ctx)
	require.Equal(t, 70.0, d.left("strict"))
}

// TestReserveAfterTheEnd: a client that hangs up at once reserves as others do, and not from nothing, as an open policy would have it.
func TestReserveAfterTheEnd(t *testing.T) {
	d := newDoor(t, budget)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, want := range []bool{true, false} {
		r, err := d.Reserve(ctx, alice(60))
		require.NoError(t, err)
		require.Equal(t, want, r.Decision.Allowed)
		require.Equal(t, 40.0, d.left("strict"))
	}
}

// TestCommitOnce: of many at once, one counts.
func TestCommitOnce(t *testing.T) {
	d := newDoor(t, budget)
	r := d.reserve(50)
	var wg sync.WaitGroup
	errs := make([]error, 20)
	for i := range errs {
		wg.Go(func() { _, errs[i] = r.Commit(t.Context(), 60) })
	}
	wg.Wait()
	settled := 0
	for _, err := range errs {
		if err == nil {
			settled++
			continue
		}
		require.ErrorIs(t, err, ratelimit.ErrSettled)
	}
	require.Equal(t, 1, settled)
	require.Equal(t, 40.0, d.left("strict"))
}

func TestReserveKeepsItsRequest(t *testing.T) {
	d := newDoor(t, budget)
	request := alice(60)
	r, err := d.Reserve(t.Context(), request)
	require.NoError(t, err)
	request.Attributes["user"] = "mallory"
	r.Cancel(t.Context())
	require.Equal(t, 100.0, d.left("strict"))
}

func TestCommitAfterReload(t *testing.T) {
	one := func(text string) string {
		return "domain: edge\npolicies:\n  - {id: strict, " + text + ", onStoreFailure: open}\n"
	}
	const look = "\n  - {id: look, match: {user: \"*\"}, key: [user], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n"
	bucket := `match: {user: "*"}, key: [user], algorithm: token-bucket, refillPerSecond: 1, `
	tests := []struct {
		name     string
		policies string
		actual   uint64
		checks   int
		left     float64 // before: 100 - 60
	}{
		{"the same", one(bucket + "capacity: 100"), 10, 1, 90},
		{"lower capacity clamps", one(bucket + "capacity: 50"), 0, 1, 50},
		{"higher capacity adds nothing", one(bucket + "capacity: 500"), 10, 1, 90},
		{"an overdraft in force now", one(bucket + "capacity: 100, charge: postpaid, overdraft: 50"), 120, 1, -20},
		{"an override in force now", one(bucket + "capacity: 100, overrides: [{match: {user: alice}, capacity: 70, comment: c}]"), 0, 1, 70},
		{"another key", one(`match: {user: "*"}, key: [user, plan], algorithm: token-bucket, refillPerSecond: 1, capacity: 100`), 10, 0, 0},
		{"shadow now: another bucket", one(bucket + "mode: shadow, capacity: 100"), 10, 0, 0},
		{"does not match any more", one(`match: {user: bob}, key: [user], algorithm: token-bucket, refillPerSecond: 1, capacity: 100`), 10, 0, 0},
		{"a sliding log now", one(`match: {user: "*"}, key: [user], algorithm: sliding-log, limit: 100, window: 1h`), 10, 0, 0},
		{"gone", "domain: edge\npolicies:" + look, 10, 0, 0},
		{"its domain gone", "domain: other\npolicies:" + look, 10, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			d := newDoor(t, one(bucket+"capacity: 100"))
			r := d.reserve(60)
			d.Use(set(t, tt.policies))
			got, err := r.Commit(t.Context(), tt.actual)
			require.NoError(t, err)
			require.Zero(t, got.Uncharged())
			require.Len(t, got.Checks, tt.checks)
			if tt.checks > 0 {
				require.Equal(t, tt.left, d.left("strict"))
				return
			}
			d.Use(set(t, one(bucket+"capacity: 100")))
			require.Equal(t, 40.0, d.left("strict"), "nothing was done")
		})
	}
}

// TestSettleWhilePoliciesChange: whatever happens at once, the bucket is never fuller than full, nor deeper in debt than it may be.
func TestSettleWhilePoliciesChange(t *testing.T) {
	sets := []*policy.Set{
		set(t, loose),
		set(t, strings.Replace(loose, "capacity: 200", "capacity: 20", 1)),
		set(t, "domain: edge\npolicies:\n  - {id: loose, match: {user: \"*\"}, key: [user], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: open}\n"),
	}
	d := newDoor(t, loose)
	ctx := t.Context()
	var wg sync.WaitGroup
	for n := range 4 {
		random := rand.New(rand.NewPCG(uint64(n), 0))
		wg.Go(func() {
			for range 200 {
				d.Use(sets[random.IntN(len(sets))])
				r, err := d.Reserve(ctx, alice(1+random.Uint64N(40)))
				if err != nil || !r.Decision.Allowed {
					_, _ = d.Refund(ctx, alice(random.Uint64()))
					continue
				}
				var both sync.WaitGroup
				actual := random.Uint64N(100)
				both.Go(func() { r.Cancel(ctx) })
				both.Go(func() { _, _ = r.Commit(ctx, actual) })
				both.Wait()
			}
		})
	}
	wg.Wait()
	d.Use(sets[0])
	left := d.left("loose")
	require.LessOrEqual(t, left, 200.0)
	require.GreaterOrEqual(t, left, -50.0)
}

func TestReserveLog(t *testing.T) {
	const log = `algorithm: sliding-log, limit: 10, window: 1h, onStoreFailure: open}`
	const bucket = "\n  - {id: tokens, match: {user: \"*\"}, key: [user], algorithm: token-bucket, capacity: 100, refillPerSecond: 1, onStoreFailure: open}\n"

	d := newDoor(t, "domain: edge\npolicies:"+bucket+`  - {id: calls, match: {user: "*"}, key: [user], `+log)
	_, err := d.Reserve(t.Context(), alice(5))
	require.ErrorIs(t, err, ratelimit.ErrNotReservable)
	require.ErrorContains(t, err, `"calls"`)
	require.Equal(t, 100.0, d.left("tokens"), "nothing was asked")

	d = newDoor(t, "domain: edge\npolicies:"+bucket+`  - {id: calls, mode: shadow, match: {user: "*"}, key: [user], `+log)
	r := d.reserve(5)
	require.True(t, r.Decision.Allowed)
	require.Equal(t, 10.0, d.left("calls"), "a shadow takes part in nothing")
	_, err = r.Commit(t.Context(), 7)
	require.NoError(t, err)
	require.Equal(t, 93.0, d.left("tokens"))
	require.Equal(t, 10.0, d.left("calls"))
}

// TestReserveShadow: a shadow bucket is settled as an enforced one, if it had room for the estimate.
func TestReserveShadow(t *testing.T) {
	policies := func(capacity int) string {
		return fmt.Sprintf("domain: edge\npolicies:\n  - {id: trial, mode: shadow, match: {user: \"*\"}, key: [user], algorithm: token-bucket, capacity: %d, refillPerSecond: 1, onStoreFailure: open}\n", capacity)
	}
	for _, tt := range []struct{ capacity, left int }{{100, 70}, {50, 50}} {
		d := newDoor(t, policies(tt.capacity))
		r := d.reserve(60)
		require.True(t, r.Decision.Allowed)
		got, err := r.Commit(t.Context(), 30)
		require.NoError(t, err)
		require.Zero(t, got.Uncharged())
		require.Equal(t, float64(tt.left), d.left("trial"))
	}
}

// TestReserveShadowBesideAFailure: a shadow that was only looked at, since an enforced bucket failed, has been charged nothing.
func TestReserveShadowBesideAFailure(t *testing.T) {
	const key = "rl:{user:x}:trial:shadow"
	policies := set(t, "policies:\n  - {id: trial, mode: shadow, key: [user], algorithm: token-bucket, capacity: 20, refillPerMinute: 60, onStoreFailure: open}\n")
	for _, tt := range []struct {
		name       string
		at         int64
		less, none []string
	}{
		{"charged", 1, []string{"undo 6 " + key}, []string{"undo 10 " + key}},
		{"only looked at", 0, []string{"force 4 " + key}, nil},
	} {
		for actual, want := range map[uint64][]string{4: tt.less, 0: tt.none} {
			t.Run(fmt.Sprint(tt.name, " ", actual), func(t *testing.T) {
				s := &recorder{answers: map[string]ratelimit.Result{key: {Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Remaining: 3, At: tt.at}}}
				l := ratelimit.New(ratelimit.Options{Store: s, Policies: policies})
				r, err := l.Reserve(t.Context(), ratelimit.Request{Attributes: map[string]string{"user": "x"}, Cost: 10})
				require.NoError(t, err)
				_, err = r.Commit(t.Context(), actual)
				require.NoError(t, err)
				require.Equal(t, append([]string{"take 10 " + key}, want...), s.asked)
			})
		}
	}
}

// TestReserveWhileTheStoreFails is about what is settled of buckets that others than the store have answered for.
func TestReserveWhileTheStoreFails(t *testing.T) {
	by := func(s ratelimit.Source) ratelimit.Result {
		return ratelimit.Result{Outcome: ratelimit.Admitted, Source: s, Remaining: 3}
	}
	reconciled := set(t, policies)
	unreconciled := set(t, "domain: edge\npolicies:\n"+
		"  - {id: user, key: [user], algorithm: token-bucket, capacity: 20, refillPerMinute: 60, onStoreFailure: local, reconcile: false}\n")
	tests := []struct {
		name     string
		policies *policy.Set
		answer   ratelimit.Result
		actual   uint64
		want     []string // after the take
	}{
		{"counted, less", reconciled, by(ratelimit.FromStore), 4, []string{"undo 6 rl:{user:x}:user"}},
		{"counted, more", reconciled, by(ratelimit.FromStore), 12, []string{"force 2 rl:{user:x}:user"}},
		{"counted, the same", reconciled, by(ratelimit.FromStore), 10, nil},
		{"counted here, less", reconciled, by(ratelimit.FromLocal), 4, []string{"refund 6 rl:{user:x}:user"}},
		{"counted here, more", reconciled, by(ratelimit.FromLocal), 12, []string{"force 2 rl:{user:x}:user"}},
		{"counted here only, less", unreconciled, by(ratelimit.FromLocal), 4, nil},
		{"counted here only, more", unreconciled, by(ratelimit.FromLocal), 12, []string{"force 2 rl:{user:x}:user"}},
		{"not counted", reconciled, by(ratelimit.FromOpen), 12, []string{"force 12 rl:{user:x}:user"}},
		{"not counted, nothing used", reconciled, by(ratelimit.FromOpen), 0, nil},
		{"not counted, without a fallback", reconciled, ratelimit.Result{Err: errors.New("gone")}, 4, []string{"force 4 rl:{user:x}:user"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &recorder{answers: map[string]ratelimit.Result{"rl:{user:x}:user": tt.answer}}
			l := ratelimit.New(ratelimit.Options{Store: s, Policies: tt.policies})
			r, err := l.Reserve(t.Context(), ratelimit.Request{Domain: "edge", Attributes: map[string]string{"user": "x"}, Cost: 10})
			require.NoError(t, err)
			require.True(t, r.Decision.Allowed)
			require.Equal(t, []string{"take 10 rl:{user:x}:user"}, s.asked)
			_, err = r.Commit(t.Context(), tt.actual)
			require.NoError(t, err)
			require.Equal(t, tt.want, append([]string(nil), s.asked[1:]...))
		})
	}
}
