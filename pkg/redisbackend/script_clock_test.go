package redisbackend

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// These tests run on a real server whose TIME is moved. It goes on by itself all the while, so that limits are such that
// what passes by itself matters little.

// drain takes until denied, at most 10,000 times, and returns how often it was admitted and how long it has to wait then.
func drain(t testing.TB, c *redis.Client, b ratelimit.Bucket) (int, time.Duration) {
	t.Helper()
	for n := range 10_000 {
		if r := acquired(t, c, b)[0]; r.Outcome == ratelimit.Denied {
			return n, r.Wait
		}
	}
	t.Fatal("never denied")
	return 0, 0
}

// near checks that a time is what it was, less what may have passed since.
func near(t testing.TB, want, got time.Duration) {
	t.Helper()
	require.LessOrEqual(t, got, want)
	require.Greater(t, got, want-20*time.Second)
}

func TestField_WallClockStepsBackAndForth(t *testing.T) {
	server, c := scriptServer(t)
	clock := time.Duration(0)
	step := func(d time.Duration) {
		clock += d
		require.NoError(t, server.SetClock(clock))
	}
	tokens, log := take("tokens", tokenBucket(10, 1)), take("log", slidingLog(10, hour))
	for _, b := range []ratelimit.Bucket{tokens, log} {
		n, _ := drain(t, c, b)
		require.Equal(t, 10, n)
	}
	step(-24 * time.Hour)
	for range 3 {
		n, wait := drain(t, c, tokens)
		require.Zero(t, n, "a step back mints nothing")
		near(t, time.Minute, wait)
		n, wait = drain(t, c, log)
		require.Zero(t, n)
		near(t, time.Hour, wait)
	}
	step(5*time.Minute + 30*time.Second)
	n, _ := drain(t, c, tokens)
	require.Equal(t, 5, n, "it refills at the pace of the new time")
	step(55 * time.Minute)
	n, _ = drain(t, c, tokens)
	require.Equal(t, 10, n)
	n, _ = drain(t, c, log)
	require.Equal(t, 10, n)
	step(24 * time.Hour)
	n, _ = drain(t, c, tokens)
	require.LessOrEqual(t, n, 1, "the time that was caught up with is not paid twice")
	n, wait := drain(t, c, log)
	require.Zero(t, n)
	require.LessOrEqual(t, wait, time.Hour)
}

func TestUndoIsReckonedByTheServersClock(t *testing.T) {
	server, c := scriptServer(t)
	undo := func(b ratelimit.Bucket, r ratelimit.Result) ratelimit.Bucket {
		b.Op, b.Before, b.At = ratelimit.Undo, r.Before, r.At
		return b
	}
	for _, s := range []struct {
		name string
		held time.Duration
		want float64
	}{
		{"nothing ran over", 0, 8},
		{"part of it would have run over", 2*time.Minute + 30*time.Second, 8},
		{"all of it", 9 * time.Minute, 9},
		{"it is full again", 30 * time.Minute, 10},
	} {
		t.Run(s.name, func(t *testing.T) {
			require.NoError(t, server.SetClock(0))
			b := take("tokens", tokenBucket(10, 1))
			acquired(t, c, with(b, ratelimit.Reset, 1))
			given := with(b, ratelimit.Take, 8)
			r := acquired(t, c, given)[0]
			acquired(t, c, with(b, ratelimit.Take, 2))
			require.NoError(t, server.SetClock(s.held))
			left := acquired(t, c, undo(given, r))[0].Remaining
			require.InDelta(t, s.want, left, 0.4, "8 of 10 were taken and come back, 2 others were")
		})
	}
	t.Run("log entries leave by their stamp", func(t *testing.T) {
		require.NoError(t, server.SetClock(0))
		b := take("log", slidingLog(10, hour))
		first := acquired(t, c, with(b, ratelimit.Take, 3))[0]
		acquired(t, c, with(b, ratelimit.Take, 2))
		require.NoError(t, server.SetClock(-time.Minute))
		require.Equal(t, 8.0, acquired(t, c, undo(with(b, ratelimit.Take, 3), first))[0].Remaining)
		require.Equal(t, 8.0, acquired(t, c, undo(with(b, ratelimit.Take, 3), first))[0].Remaining, "once")
	})
}

func TestField_DrainedAndReloadedToAPerDayRate(t *testing.T) {
	server, c := scriptServer(t)
	b := take("a", tokenBucket(100, 100))
	n, _ := drain(t, c, b)
	require.GreaterOrEqual(t, n, 100)
	b.Limits = tokenBucket(100, 100./1440)
	admitted := 0
	for i := range 12 {
		require.NoError(t, server.SetClock(time.Duration(i)*10*time.Second))
		if acquired(t, c, b)[0].Outcome == ratelimit.Admitted {
			admitted++
		}
	}
	require.LessOrEqual(t, admitted, 1)
}

// checkLife checks that a key lives no longer than its bucket, in state r, needs to be full.
func checkLife(t *testing.T, c *redis.Client, b *ratelimit.Bucket, r *ratelimit.Result) {
	t.Helper()
	ctx := context.Background()
	left, err := c.Do(ctx, "PTTL", b.Key.String()).Int64()
	require.NoError(t, err)
	require.NotEqual(t, int64(-1), left, "%+v: no TTL", b)
	if left == -2 {
		return // not there
	}
	if r.At == 0 { // a shadow that was not charged does not tell
		look := with(*b, ratelimit.Peek, 1)
		look.Shadow = false
		r = &acquired(t, c, look)[0]
	}
	now, err := c.Time(ctx).Result()
	require.NoError(t, err)
	need := max(0, r.At-now.UnixMicro()) // the offset
	if b.Limits.Kind == algorithm.SlidingLog {
		need += b.Limits.Window
	} else {
		need += int64((b.Limits.Capacity - r.Remaining) / b.Limits.Rate)
	}
	require.LessOrEqual(t, left*1000, need+second, "%+v, %+v", b, r)
}

func TestEveryKeyHasATTLAndNoneTooLong(t *testing.T) {
	for _, seed := range []uint64{79, rand.Uint64N(100)} { // 79: a look at a bucket that was full made its key live on
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { walkAndCheckLives(t, seed) })
	}
}

func walkAndCheckLives(t *testing.T, seed uint64) {
	server, c := scriptServer(t)
	w := newWalk(seed, false)
	for i := range w.limits {
		w.limits[i] = tokenBucket(100, 1000)
		if i%2 == 0 {
			w.limits[i] = slidingLog(10, 5*second)
		}
	}
	clock := time.Duration(0)
	for i := range 3000 {
		if i%10 == 0 {
			clock += time.Duration(w.Int64N(int64(4*time.Second)) - int64(time.Second))
			if w.IntN(10) == 0 {
				clock -= time.Minute
			}
			require.NoError(t, server.SetClock(clock))
		}
		n := w.IntN(len(w.limits))
		buckets := []ratelimit.Bucket{w.bucket(n), w.bucket((n + 1) % len(w.limits))}
		results := acquired(t, c, buckets...)
		for j := range buckets {
			checkLife(t, c, &buckets[j], &results[j])
		}
	}
}
