package memorybackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func take(key policy.Key, l algorithm.Limits) ratelimit.Bucket {
	return ratelimit.Bucket{Key: key, Limits: l, Cost: 1, Op: ratelimit.Take}
}

func closed(b ratelimit.Bucket) ratelimit.Bucket {
	b.OnFailure = policy.Closed
	return b
}

// client calls a store from one goroutine without allocating.
type client struct {
	store   *memorybackend.Store
	buckets [1]ratelimit.Bucket
	results []ratelimit.Result
}

func (c *client) one(b ratelimit.Bucket) ratelimit.Result {
	c.buckets[0] = b
	c.results = c.store.Acquire(context.Background(), c.buckets[:], c.results)
	return c.results[0]
}

func open(o memorybackend.Options) (*client, *manualClock) {
	clock := &manualClock{}
	o.Now = clock.us.Load
	return &client{store: memorybackend.New(o)}, clock
}

func TestTheDefaultClockIsMonotonicTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{store: memorybackend.New(memorybackend.Options{})}
		for _, l := range []algorithm.Limits{storetest.TB(1, 7), storetest.SL(1, time.Minute)} {
			b := take(keyOf(int(l.Kind)), l)
			require.Equal(t, ratelimit.Admitted, c.one(b).Outcome)
			time.Sleep(c.one(b).Wait - time.Microsecond)
			require.Equal(t, time.Microsecond, c.one(b).Wait)
			time.Sleep(time.Microsecond)
			require.Equal(t, ratelimit.Admitted, c.one(b).Outcome)
		}
	})
}

func TestField_Cost21OnTB20IsNeverAdmitted(t *testing.T) {
	c, _ := open(memorybackend.Options{})
	for _, cost := range []uint64{21, 1<<32 - 1, 1<<64 - 1} {
		for _, l := range []algorithm.Limits{storetest.TB(20, 1), storetest.SL(20, time.Hour), storetest.TB(0, 1), storetest.SL(0, time.Hour)} {
			b := take(keyOf(int(l.Kind)), l)
			b.Cost = cost
			require.Equal(t, ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromNever}, c.one(b))
		}
	}
	require.Zero(t, c.store.Stats().Buckets)
	b := take(keyOf(1), storetest.TB(20, 1))
	b.Cost = 20
	require.Equal(t, ratelimit.Admitted, c.one(b).Outcome)
}

// TestALapsedBucketIsNew shows that it makes no difference whether a full bucket has been forgotten already.
func TestALapsedBucketIsNew(t *testing.T) {
	for _, c := range []struct {
		name     string
		old, now algorithm.Limits
	}{
		{"a longer window", storetest.SL(2, time.Second), storetest.SL(2, time.Hour)},
		{"a higher capacity", storetest.TB(1, 60), storetest.TB(2, 60)},
		{"tokens to log", storetest.TB(1, 60), storetest.SL(2, time.Hour)},
		{"log to tokens", storetest.SL(2, time.Second), storetest.TB(2, 60)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, clock := open(memorybackend.Options{})
			b := take(keyOf(1), c.old)
			for s.one(b).Outcome == ratelimit.Admitted {
			}
			clock.advance(time.Second)
			b.Limits = c.now
			require.Equal(t, 1.0, s.one(b).Remaining)
			require.Equal(t, 0.0, s.one(b).Remaining)
			require.Equal(t, ratelimit.Denied, s.one(b).Outcome)
			require.NoError(t, s.store.Check())
		})
	}
}

// TestOneKeySeveralTimes goes beyond what the Store interface promises.
func TestOneKeySeveralTimes(t *testing.T) {
	for _, l := range []algorithm.Limits{storetest.TB(5, 1e-9), storetest.SL(5, time.Hour)} {
		t.Run(l.Kind.String(), func(t *testing.T) {
			c, _ := open(memorybackend.Options{})
			b := take(keyOf(1), l)
			b.Cost = 2
			r := c.store.Acquire(context.Background(), []ratelimit.Bucket{b, b, b}, nil)
			require.Equal(t, ratelimit.Denied, r[2].Outcome, "2 + 2 + 2 of 5")
			require.Equal(t, 5.0, r[0].Remaining)
			require.Zero(t, c.store.Stats().Buckets)
			r = c.store.Acquire(context.Background(), []ratelimit.Bucket{b, b}, nil)
			require.Equal(t, ratelimit.Admitted, r[1].Outcome)
			require.InDelta(t, 1, r[1].Remaining, 1e-6)
			b.Cost = 1
			require.InDelta(t, 0, c.one(b).Remaining, 1e-6)
			require.Equal(t, ratelimit.Denied, c.one(b).Outcome)
		})
	}
	t.Run("under two algorithms", func(t *testing.T) {
		c, _ := open(memorybackend.Options{})
		r := c.store.Acquire(context.Background(), []ratelimit.Bucket{
			take(keyOf(1), storetest.TB(5, 1)), take(keyOf(1), storetest.SL(5, time.Hour)),
		}, nil)
		require.NoError(t, r[0].Err)
		require.Error(t, r[1].Err)
	})
}

func TestNothingIsAllocated(t *testing.T) {
	if raced {
		t.Skip("the race detector's instrumentation moves a call's claims to the heap")
	}
	c, clock := open(memorybackend.Options{})
	for _, n := range []int{1, 8} {
		var buckets []ratelimit.Bucket
		for i := range n {
			l := storetest.TB(100, 1e9)
			if i%2 == 1 {
				l = storetest.SL(5, time.Microsecond)
			}
			buckets = append(buckets, take(keyOf(i), l))
		}
		results := c.store.Acquire(context.Background(), buckets, nil)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			clock.us.Add(1)
			results = c.store.Acquire(context.Background(), buckets, results)
		}), "%d buckets", n)
	}
}

func TestKeysOfAnyLength(t *testing.T) {
	c, _ := open(memorybackend.Options{})
	for n := range 300 {
		for _, last := range []string{"a", "b"} {
			var parts []policy.Part
			for rest := n; rest > 0; rest -= 50 {
				parts = append(parts, policy.Part{Name: "user", Value: strings.Repeat("x", min(rest, 50))})
			}
			key := policy.NewKey(policy.Part{Name: "tenant", Value: "t"}, "p", append(parts, policy.Part{Name: "user", Value: last})...)
			require.Equal(t, 4.0, c.one(take(key, storetest.TB(5, 1))).Remaining, "%d %s", n, last)
			require.Equal(t, 3.0, c.one(take(key, storetest.TB(5, 1))).Remaining, "%d %s", n, last)
		}
	}
}

// TestManyKeysAgainstAMap walks through tables that grow, shrink and lose lapsed buckets all the time.
func TestManyKeysAgainstAMap(t *testing.T) {
	c, clock := open(memorybackend.Options{MaxBuckets: 100_000})
	random := rand.New(rand.NewPCG(3, 4))
	last := map[int][]int64{} // the times of the takes that still count
	const window = 2000
	calls := 150_000
	if storetest.Long() && !raced {
		calls *= 20
	}
	keys := benchmarkKeys(20_000)
	for i := range calls {
		now := clock.us.Add(int64(random.IntN(3)))
		// Most of the time few keys, now and then very many.
		k := random.IntN(100 + (i/10_000%2)*19_900)
		b := take(keys[k], algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 3, Window: window})
		times := last[k]
		for len(times) > 0 && times[0] <= now-window {
			times = times[1:]
		}
		r := c.one(b)
		if fits := len(times) < 3; fits != (r.Outcome == ratelimit.Admitted) {
			t.Fatalf("call %d: got %+v with %d in the window", i, r, len(times))
		} else if fits {
			times = append(times, now)
		}
		last[k] = times
		if i%10_000 == 0 {
			require.NoError(t, c.store.Check())
		}
	}
	require.NoError(t, c.store.Check())
	require.Zero(t, c.store.Stats().Evicted)
}

func TestConcurrentCallsInLittleRoom(t *testing.T) {
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 500, MaxRuns: 300})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 1))
			var results []ratelimit.Result
			for range 1000 {
				var buckets []ratelimit.Bucket
				for range 1 + random.IntN(12) {
					l := storetest.TB(5, 6e6)
					if random.IntN(2) == 0 {
						l = storetest.SL(5, time.Millisecond)
					}
					b := take(policy.NewKey(policy.Part{}, fmt.Sprint(random.IntN(3000))), l)
					b.Op = []ratelimit.Op{ratelimit.Take, ratelimit.Take, ratelimit.Take, ratelimit.Peek, ratelimit.Refund, ratelimit.Force, ratelimit.Undo, ratelimit.Reset}[random.IntN(8)]
					b.OnFailure, b.Shadow = policy.FailureMode(1+random.IntN(3)), random.IntN(5) == 0
					buckets = append(buckets, b)
				}
				results = store.Acquire(context.Background(), buckets, results)
			}
		})
	}
	wg.Wait()
	require.NoError(t, store.Check())
	require.LessOrEqual(t, store.Stats().Buckets, 500+10)
}
