package ratelimit_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// loose is a bucket of 200 that may go 50 into debt.
const loose = `
domain: edge
policies:
  - {id: loose, match: {user: "*"}, key: [user], algorithm: token-bucket, capacity: 200, refillPerSecond: 1, charge: postpaid, overdraft: 50, onStoreFailure: open}
`

const looseRoom = 250

// job is a reservation and what it comes to.
type job struct {
	reservation *ratelimit.Reservation
	actual      uint64
}

// crowd reserves until there is no room, and says what it will all come to.
func crowd(t require.TestingT, l *ratelimit.Limiter, most int, random func(n int) int) (jobs []job, total uint64) {
	for range most {
		r, err := l.Reserve(context.Background(), alice(uint64(1+random(40))))
		require.NoError(t, err)
		if !r.Decision.Allowed {
			continue
		}
		j := job{r, uint64(random(80))}
		jobs, total = append(jobs, j), total+j.actual
	}
	return jobs, total
}

// TestAnyOrder: in whatever order reservations are settled, what is charged is the smaller of what they took and what there was.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := newDoor(t, loose)
		var open []job
		var taken, uncharged, madeUp uint64
		settle := func(n int) {
			j := open[n]
			open = append(open[:n], open[n+1:]...)
			got, err := j.reservation.Commit(t.Context(), j.actual)
			require.NoError(rt, err)
			taken, uncharged, madeUp = taken+j.actual, uncharged+got.Uncharged(), madeUp+got.MadeUp()
			for _, c := range got.Checks {
				require.Equal(rt, d.left("loose"), c.Result.Remaining)
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			if len(open) > 0 && rapid.Bool().Draw(rt, "settle") {
				settle(rapid.IntRange(0, len(open)-1).Draw(rt, "which"))
				continue
			}
			more, _ := crowd(rt, d.Limiter, 1, func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "n") })
			open = append(open, more...)
		}
		for len(open) > 0 {
			settle(rapid.IntRange(0, len(open)-1).Draw(rt, "which"))
		}
		charged := min(taken, looseRoom)
		require.Equal(rt, charged, taken-uncharged+madeUp, "as commits tell")
		require.Equal(rt, 200-float64(charged), d.left("loose"), "as the bucket has it")
	})
}

// unhurried lets others go first, before it asks and before it tells.
type unhurried struct{ ratelimit.Store }

func (s unhurried) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	for range rand.IntN(4) {
		runtime.Gosched()
	}
	results = s.Store.Acquire(ctx, buckets, results)
	for range rand.IntN(4) {
		runtime.Gosched()
	}
	return results
}

// TestAllAtOnce is the same for reservations that are settled at once.
func TestAllAtOnce(t *testing.T) {
	for seed := range uint64(200) {
		var stands atomic.Int64
		memory := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10, Now: stands.Load})
		l := ratelimit.New(ratelimit.Options{Store: unhurried{memory}, Policies: set(t, loose)})
		random := rand.New(rand.NewPCG(seed, 7))
		jobs, taken := crowd(t, l, 40, random.IntN)
		var charged atomic.Uint64
		charged.Store(taken)
		var wg sync.WaitGroup
		for _, j := range jobs {
			wg.Go(func() {
				got, err := j.reservation.Commit(context.Background(), j.actual)
				if err != nil {
					t.Error(err)
				}
				charged.Add(got.MadeUp() - got.Uncharged())
			})
		}
		wg.Wait()
		require.Equal(t, min(taken, looseRoom), charged.Load(), "seed %d", seed)
		d, err := l.Peek(t.Context(), alice(0))
		require.NoError(t, err)
		require.Equal(t, 200-float64(charged.Load()), d.Checks[0].Result.Remaining, "seed %d", seed)
	}
}

// TestRemainders: what belongs together, and what does not.
func TestRemainders(t *testing.T) {
	commit := func(t *testing.T, r *ratelimit.Reservation, actual uint64) ratelimit.Decision {
		got, err := r.Commit(t.Context(), actual)
		require.NoError(t, err)
		return got
	}
	t.Run("one that began later owes nothing", func(t *testing.T) {
		d := newDoor(t, loose)
		require.Equal(t, uint64(50), ptr(commit(t, d.reserve(1), 300)).Uncharged())
		d.pass(200 * time.Second)
		require.Zero(t, ptr(commit(t, d.reserve(100), 40)).MadeUp())
		require.InDelta(t, 110, d.left("loose"), 1e-6)
	})
	t.Run("no more than was given back, and only once", func(t *testing.T) {
		d := newDoor(t, loose)
		greedy, one, two, three := d.reserve(1), d.reserve(50), d.reserve(50), d.reserve(50)
		require.Equal(t, uint64(150+70), ptr(commit(t, greedy, 320)).Uncharged())
		require.Equal(t, uint64(40), ptr(commit(t, one, 10)).MadeUp())
		two.Cancel(t.Context())
		three.Cancel(t.Context())
		require.Equal(t, -50.0, d.left("loose"), "80 are still owed")
	})
	t.Run("a cost beyond all numbers", func(t *testing.T) {
		d := newDoor(t, loose)
		rs := []*ratelimit.Reservation{d.reserve(1), d.reserve(1), d.reserve(100)}
		for _, r := range rs[:2] {
			commit(t, r, math.MaxUint64)
		}
		require.Equal(t, uint64(100), ptr(commit(t, rs[2], 0)).MadeUp())
	})
	t.Run("each client its own", func(t *testing.T) {
		d := newDoor(t, loose)
		bob, err := d.Reserve(t.Context(), ratelimit.Request{Domain: "edge", Attributes: map[string]string{"user": "bob"}, Cost: 100})
		require.NoError(t, err)
		commit(t, d.reserve(1), 1000)
		require.Zero(t, ptr(commit(t, bob, 0)).MadeUp())
	})
}

func ptr[T any](v T) *T { return &v }

// breaks fails when it is told to.
type breaks struct {
	ratelimit.Store
	force bool
}

func (s *breaks) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if s.force && buckets[0].Op == ratelimit.Force {
		return append(results[:0], ratelimit.Result{Err: errors.New("gone")})
	}
	return s.Store.Acquire(ctx, buckets, results)
}

// TestRemainderLost: a remainder is not charged twice because a store did not say whether it was.
func TestRemainderLost(t *testing.T) {
	s := &breaks{Store: memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10, Now: func() int64 { return 1 }})}
	d := &door{t: t, Limiter: ratelimit.New(ratelimit.Options{Store: s, Policies: set(t, loose)})}
	greedy, one, two := d.reserve(1), d.reserve(50), d.reserve(50)
	_, err := greedy.Commit(t.Context(), 300)
	require.NoError(t, err)
	s.force = true
	got, err := one.Commit(t.Context(), 0)
	require.NoError(t, err)
	require.Zero(t, got.MadeUp())
	s.force = false
	got, err = two.Commit(t.Context(), 0)
	require.NoError(t, err)
	require.Equal(t, uint64(50), got.MadeUp(), "of 150, 50 are lost, and 50 stay")
	require.Equal(t, 0.0, d.left("loose"))
}
