package memorybackend_test

import (
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// slow is a bucket that does not fill again while a test runs.
var slow = storetest.TB(20, 1e-6)

func TestField_ChurnNeverEvictsADrainedHotBucket(t *testing.T) {
	const room, hot = 10_000, 100
	churn := 100_000
	if storetest.Long() && !raced {
		churn = 10_000_000
	}
	c, _ := open(memorybackend.Options{MaxBuckets: room})
	drained := slow
	for i := range hot {
		b := take(keyOf(i), drained)
		b.Cost = 20
		require.Equal(t, ratelimit.Admitted, c.one(b).Outcome)
	}
	for i := range churn {
		require.Equal(t, ratelimit.Admitted, c.one(take(keyOf(hot+i), slow)).Outcome)
		if i%1000 == 0 {
			for h := range hot {
				require.Equal(t, ratelimit.Denied, c.one(take(keyOf(h), drained)).Outcome, "hot bucket %d after %d others", h, i)
			}
		}
	}
	stats := c.store.Stats()
	require.NoError(t, c.store.Check())
	require.LessOrEqual(t, stats.Buckets, room+256)
	require.Equal(t, uint64(hot+churn-stats.Buckets), stats.Evicted)
	require.InDelta(t, float64(stats.Evicted), stats.EvictedTokens, 1, "each of them had one token missing")
}

// TestDrainedChurnSparesAHotBucket: keys that are drained by their only call drive each other out, not the bucket that
// somebody goes on calling.
func TestDrainedChurnSparesAHotBucket(t *testing.T) {
	const room, hot, churn = 10_000, 10, 100_000
	c, clock := open(memorybackend.Options{MaxBuckets: room})
	one := func(key int, l algorithm.Limits) ratelimit.Outcome {
		b := take(keyOf(key), l)
		b.Cost = uint64(l.Capacity)
		return c.one(b).Outcome
	}
	log := storetest.SL(1, time.Hour)
	for i := range hot {
		require.Equal(t, ratelimit.Admitted, one(i, slow))
	}
	for i := range churn {
		clock.us.Add(10)
		require.Equal(t, ratelimit.Admitted, one(hot+i, []algorithm.Limits{slow, log}[i%2]))
		if i%100 == 0 {
			for h := range hot {
				require.Equal(t, ratelimit.Denied, one(h, slow), "hot bucket %d after %d others", h, i)
			}
		}
	}
	require.NoError(t, c.store.Check())
}

func TestField_TenMillionKeysStayWithinTheBound(t *testing.T) {
	keys, room := 100_000, 20_000
	if storetest.Long() && !raced {
		keys, room = 10_000_000, 1_000_000
	}
	before := heap()
	c, _ := open(memorybackend.Options{MaxBuckets: room})
	for i := range keys {
		c.one(take(keyOf(i), slow))
	}
	bytes := float64(int64(heap()-before)) / float64(c.store.Stats().Buckets)
	require.Less(t, bytes, 110.0, "bytes a bucket")
	require.LessOrEqual(t, c.store.Stats().Buckets, room+256)
	runtime.KeepAlive(c)
}

func TestFullBucketsAreForgottenFirst(t *testing.T) {
	for _, l := range []algorithm.Limits{storetest.TB(20, 60), storetest.SL(20, time.Second)} {
		t.Run(l.Kind.String(), func(t *testing.T) {
			c, clock := open(memorybackend.Options{MaxBuckets: 3_000})
			kept := take(keyOf(-1), slow)
			kept.Cost = 20
			c.one(kept)
			for i := range 60_000 {
				clock.us.Add(1000) // 1,000 buckets live at a time
				c.one(take(keyOf(i), l))
			}
			stats := c.store.Stats()
			require.Zero(t, stats.Evicted)
			require.Less(t, stats.Buckets, 2_500, "forgotten as time goes by")
			require.Equal(t, ratelimit.Denied, c.one(kept).Outcome)
			require.NoError(t, c.store.Check())
		})
	}
}

func TestATableShrinksAgain(t *testing.T) {
	c, clock := open(memorybackend.Options{MaxBuckets: 1_000_000})
	before := heap()
	for i := range 60_000 {
		c.one(take(keyOf(i), storetest.SL(20, time.Second)))
	}
	clock.advance(time.Minute)
	for i := range 60_000 {
		clock.us.Add(1000) // about 1,000 buckets live at a time
		c.one(take(keyOf(i), storetest.SL(20, time.Second)))
	}
	require.Less(t, c.store.Stats().Buckets, 15_000)
	require.Less(t, int64(heap()-before), int64(60_000*50))
	runtime.KeepAlive(c)
}

// TestClosedBucketsShareWhenThereIsNoRoom fills a store with logins that are denied when they cannot be counted.
func TestClosedBucketsShareWhenThereIsNoRoom(t *testing.T) {
	for _, l := range []algorithm.Limits{storetest.SL(10, time.Hour), storetest.TB(10, 1e-6)} {
		t.Run(l.Kind.String(), func(t *testing.T) {
			const room = 1000
			c, clock := open(memorybackend.Options{MaxBuckets: room})
			victim := closed(take(keyOf(-1), l))
			for range 10 {
				require.Equal(t, ratelimit.Admitted, c.one(victim).Outcome)
			}
			admitted := 0
			for i := range 20 * room {
				if c.one(closed(take(keyOf(i), l))).Outcome == ratelimit.Admitted {
					admitted++
				}
			}
			stats := c.store.Stats()
			require.Equal(t, ratelimit.Denied, c.one(victim).Outcome)
			require.Zero(t, stats.Evicted)
			require.LessOrEqual(t, stats.Buckets, room)
			require.Equal(t, stats.Buckets-2+10, admitted, "one for each bucket of its own, ten for those that share")
			require.Equal(t, uint64(10), stats.Shared)
			for i := range room {
				require.Equal(t, ratelimit.Admitted, c.one(take(keyOf(1_000_000+i), slow)).Outcome, "others still find room")
			}
			require.Equal(t, ratelimit.Denied, c.one(victim).Outcome, "and do not drive out a closed one")
			require.NoError(t, c.store.Check())

			other := l
			other.Capacity = 7
			for i := range 7 {
				require.Equal(t, ratelimit.Admitted, c.one(closed(take(keyOf(2_000_000+i), other))).Outcome, "other limits share another bucket")
			}
			require.Equal(t, ratelimit.Denied, c.one(closed(take(keyOf(2_000_000), other))).Outcome)
			if l.Kind == algorithm.SlidingLog {
				clock.advance(time.Hour)
				require.Equal(t, 9.0, c.one(closed(take(keyOf(3_000_000), l))).Remaining, "room again")
			}
		})
	}
}

func TestAReloadThatClosesBucketsLeavesNoRoomForOthers(t *testing.T) {
	c, _ := open(memorybackend.Options{MaxBuckets: 16})
	for i := range 16 {
		c.one(take(keyOf(i), slow))
	}
	for i := range 16 {
		c.one(closed(take(keyOf(i), slow)))
	}
	require.Equal(t, ratelimit.Admitted, c.one(take(keyOf(100), slow)).Outcome)
	require.Equal(t, memorybackend.Stats{Buckets: 16, Evicted: 1, EvictedTokens: 1}, c.store.Stats())
	for i := range 16 {
		require.InDelta(t, 17, c.one(take(keyOf(i), slow)).Remaining, 0.01, "kept, and open again")
	}
	require.NoError(t, c.store.Check())
}

func TestLogsStayWithinTheirRoom(t *testing.T) {
	const logs, runs = 30, 600
	l := storetest.SL(1000, time.Second)
	c, clock := open(memorybackend.Options{MaxRuns: runs})
	var admitted [logs][]int64
	for range 4000 {
		now := clock.us.Add(1000)
		for k := range logs {
			if c.one(take(keyOf(k), l)).Outcome == ratelimit.Admitted {
				admitted[k] = append(admitted[k], now)
			}
		}
	}
	stats := c.store.Stats()
	require.LessOrEqual(t, stats.Runs, int64(runs+logs))
	require.Positive(t, stats.Joined)
	require.NoError(t, c.store.Check())
	for k := range logs {
		require.Greater(t, len(admitted[k]), 2000, "stricter, but not by much")
		for i := 1000; i < len(admitted[k]); i++ {
			require.GreaterOrEqual(t, admitted[k][i]-admitted[k][i-1000], int64(time.Second/time.Microsecond))
		}
	}
}

func TestALogOfAHundredThousandEntriesIsExact(t *testing.T) {
	const limit = 100_000
	c, clock := open(memorybackend.Options{})
	b := take(keyOf(1), storetest.SL(limit, time.Second))
	for i := range limit {
		clock.us.Store(int64(i) * 7)
		require.Equal(t, ratelimit.Admitted, c.one(b).Outcome)
	}
	for i := range int64(limit) {
		due := i*7 + 1_000_000
		clock.us.Store(due - 1)
		if r := c.one(b); r.Outcome != ratelimit.Denied || r.Wait != time.Microsecond {
			t.Fatalf("entry %d: got %+v", i, r)
		}
		clock.us.Store(due)
		if r := c.one(b); r.Outcome != ratelimit.Admitted {
			t.Fatalf("entry %d: got %+v", i, r)
		}
	}
	require.Equal(t, int64(limit), c.store.Stats().Runs)
	clock.advance(10 * time.Second)
	c.one(b)
	clock.advance(time.Millisecond)
	c.one(b)
	require.LessOrEqual(t, c.store.Stats().Runs, int64(16), "small again after the burst")
}

func TestStatsOfAnEmptyStore(t *testing.T) {
	c, _ := open(memorybackend.Options{MaxBuckets: 1})
	require.Equal(t, memorybackend.Stats{}, c.store.Stats())
	require.False(t, math.Signbit(c.store.Stats().EvictedTokens))
}
