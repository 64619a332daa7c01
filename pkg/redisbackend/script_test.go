package redisbackend

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const (
	second = int64(1e6)
	minute = 60 * second
	hour   = 60 * minute
)

func TestABucketTakesNoMoreMemoryThanAHash(t *testing.T) {
	ctx := context.Background()
	server, c := scriptServer(t)
	key := policy.NewKey(policy.Part{Name: "tenant", Value: "acme12345"}, "api-free", policy.Part{Name: "apiKey", Value: "ak_0123456789abcdef"})
	require.Equal(t, "rl:{t:acme12345}:api-free:k:ak_0123456789abcdef", key.String())
	b := take("", tokenBucket(20, 100))
	b.Key = key
	usage := func() int64 {
		acquired(t, c, b)
		n, err := c.MemoryUsage(ctx, key.String()).Result()
		require.NoError(t, err)
		return n
	}
	require.NoError(t, c.HSet(ctx, key.String(), "tokens", "19.123456", "last", "1800000000000000").Err())
	hash, err := c.MemoryUsage(ctx, key.String()).Result()
	require.NoError(t, err)
	require.NoError(t, c.Del(ctx, key.String()).Err())
	require.GreaterOrEqual(t, hash, int64(136))

	require.LessOrEqual(t, usage(), int64(136))
	require.NoError(t, server.SetClock(-time.Hour))
	require.LessOrEqual(t, usage(), int64(136), "a clock that is ahead")
	b.Limits = tokenBucket(1<<40-1, 1e9)
	require.LessOrEqual(t, usage(), int64(136), "a large capacity")
	b.Limits = slidingLog(10, hour)
	for range 10 {
		require.LessOrEqual(t, usage(), int64(320), "a log of 10")
	}
}

func TestWhatGoesWrongWritesNothing(t *testing.T) {
	ctx := context.Background()
	_, c := scriptServer(t)
	good := take("good", tokenBucket(10, 1))
	log := take("log", slidingLog(10, hour))
	bad := take("bad", tokenBucket(10, 1))
	badLog := take("bad", slidingLog(10, hour))
	for _, s := range []struct {
		name  string
		make  func() error
		error string
	}{
		{"a list", func() error { return c.RPush(ctx, bad.Key.String(), 1).Err() }, "WRONGTYPE"},
		{"a hash", func() error { return c.HSet(ctx, bad.Key.String(), "tokens", 1).Err() }, "WRONGTYPE"},
		{"a short text", func() error { return c.Set(ctx, bad.Key.String(), "17", 0).Err() }, "unknown state format"},
		{"a long text", func() error { return c.Set(ctx, bad.Key.String(), strings.Repeat("x", 100), 0).Err() }, "unknown state format"},
		{"a longer text", func() error { return c.Set(ctx, bad.Key.String(), strings.Repeat("x", 3000), 0).Err() }, "unknown state format"},
	} {
		for _, b := range []ratelimit.Bucket{bad, badLog} {
			t.Run(s.name+" for a "+b.Limits.Kind.String(), func(t *testing.T) {
				require.NoError(t, c.FlushDB(ctx).Err())
				require.NoError(t, s.make())
				was, err := c.Dump(ctx, bad.Key.String()).Result()
				require.NoError(t, err)
				_, err = acquire(c, good, log, with(good, ratelimit.Force, 3), b)
				require.ErrorContains(t, err, s.error)
				require.Equal(t, []string{bad.Key.String()}, c.Keys(ctx, "*").Val())
				require.Equal(t, was, c.Dump(ctx, bad.Key.String()).Val())
			})
		}
	}
}

func TestBadArgumentsWriteNothing(t *testing.T) {
	ctx := context.Background()
	_, c := scriptServer(t)
	good := take("good", tokenBucket(10, 1))
	change := func(do func(b *ratelimit.Bucket)) ratelimit.Bucket {
		b := take("bad", tokenBucket(10, 1))
		do(&b)
		return b
	}
	for name, b := range map[string]ratelimit.Bucket{
		"no cost":             change(func(b *ratelimit.Bucket) { b.Cost = 0 }),
		"no op":               change(func(b *ratelimit.Bucket) { b.Op = 0 }),
		"an op too many":      change(func(b *ratelimit.Bucket) { b.Op = ratelimit.Put + 1 }),
		"no algorithm":        change(func(b *ratelimit.Bucket) { b.Limits.Kind = 0 }),
		"another algorithm":   change(func(b *ratelimit.Bucket) { b.Limits.Kind = 100 }),
		"capacity NaN":        change(func(b *ratelimit.Bucket) { b.Limits.Capacity = math.NaN() }),
		"capacity too large":  change(func(b *ratelimit.Bucket) { b.Limits.Capacity = 1e15 }),
		"negative capacity":   change(func(b *ratelimit.Bucket) { b.Limits.Capacity = -1 }),
		"negative rate":       change(func(b *ratelimit.Bucket) { b.Limits.Rate = -1 }),
		"rate infinite":       change(func(b *ratelimit.Bucket) { b.Limits.Rate = math.Inf(1) }),
		"overdraft NaN":       change(func(b *ratelimit.Bucket) { b.Op, b.Overdraft = ratelimit.Force, math.NaN() }),
		"tokens before NaN":   change(func(b *ratelimit.Bucket) { b.Op, b.Before = ratelimit.Undo, math.NaN() }),
		"time before all":     change(func(b *ratelimit.Bucket) { b.Op, b.At = ratelimit.Undo, math.MinInt64 }),
		"tokens before: none": change(func(b *ratelimit.Bucket) { b.Op, b.Before = ratelimit.Undo, math.Inf(-1) }),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := acquire(c, good, b)
			require.Error(t, err)
			require.Zero(t, c.DBSize(ctx).Val())
		})
	}
	t.Run("an argument too short", func(t *testing.T) {
		args := appendArgs([]any{"EVALSHA", script.sha}, []ratelimit.Bucket{good, with(take("bad", good.Limits), ratelimit.Undo, 1)}, []int{0, 1}, false)
		last := len(args) - 1
		args[last] = args[last].([]byte)[:30]
		require.Error(t, c.Do(ctx, args...).Err())
		require.Zero(t, c.DBSize(ctx).Val())
	})
}

func TestLargestNumbers(t *testing.T) {
	_, c := scriptServer(t)
	for _, l := range []algorithm.Limits{tokenBucket(1e15-1, 3e9), slidingLog(1e15-1, 10*365*24*hour)} {
		b := take("a "+l.Kind.String(), l)
		require.Equal(t, 1e15-1, acquired(t, c, with(b, ratelimit.Peek, 1e15-1))[0].Remaining)
		r := acquired(t, c, with(b, ratelimit.Take, 1e15-1))[0]
		require.Equal(t, ratelimit.Admitted, r.Outcome)
		require.Zero(t, r.Remaining)
		require.Equal(t, ratelimit.Denied, acquired(t, c, with(b, ratelimit.Take, 1e15-1))[0].Outcome)
		require.Greater(t, acquired(t, c, with(b, ratelimit.Force, math.MaxUint64))[0].Uncharged, uint64(math.MaxUint64-2e15))
		require.Equal(t, 1e15-1, acquired(t, c, with(b, ratelimit.Refund, math.MaxUint64))[0].Remaining)
		r = acquired(t, c, with(b, ratelimit.Take, math.MaxUint64))[0]
		require.Equal(t, ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromNever, Before: r.Before, Remaining: 1e15 - 1, At: r.At}, r)
	}
	b := take("count past 2^52", slidingLog(1e15-1, 1))
	for range 12 {
		require.Equal(t, ratelimit.Admitted, acquired(t, c, with(b, ratelimit.Take, 1e15-1))[0].Outcome)
		time.Sleep(time.Microsecond)
	}
}

func TestWithoutMemoryNothingIsWritten(t *testing.T) {
	ctx := context.Background()
	_, c := scriptServer(t)
	here, log := take("here", tokenBucket(10, 1)), take("log", slidingLog(2, hour))
	acquired(t, c, here, with(log, ratelimit.Take, 2))
	was := []string{c.Get(ctx, here.Key.String()).Val(), c.Get(ctx, log.Key.String()).Val()}
	require.NoError(t, c.ConfigSet(ctx, "maxmemory", "1").Err())
	_, err := acquire(c, here, take("new", tokenBucket(10, 1)))
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, ratelimit.Denied, acquired(t, c, log, here)[0].Outcome, "a denial needs none")
	require.Equal(t, was, []string{c.Get(ctx, here.Key.String()).Val(), c.Get(ctx, log.Key.String()).Val()})
	require.Equal(t, int64(2), c.DBSize(ctx).Val())
}

func TestABucketThatNeverRefillsHasATTL(t *testing.T) {
	_, c := scriptServer(t)
	b := take("a", tokenBucket(1, 0))
	require.Equal(t, ratelimit.Admitted, acquired(t, c, b)[0].Outcome)
	require.Equal(t, ratelimit.Denied, acquired(t, c, b)[0].Outcome)
	left, err := c.Do(context.Background(), "PTTL", b.Key.String()).Int64()
	require.NoError(t, err)
	require.InDelta(t, mostLife, left, 1e5)
}

func TestReplyThatIsNone(t *testing.T) {
	buckets := []ratelimit.Bucket{take("a", tokenBucket(1, 1)), take("b", slidingLog(1, second))}
	sound := "\x01" + strings.Repeat("\x00", 24) + "\x02" + strings.Repeat("\x00", 32)
	for name, reply := range map[string]any{
		"nil": nil, "a number": int64(1), "nothing": "", "too short": sound[1:], "too long": sound + "\x00",
		"an unknown record": "\x04" + sound[1:], "a list": []any{sound}, "an error": fmt.Errorf("ERR"),
	} {
		t.Run(name, func(t *testing.T) {
			results := make([]ratelimit.Result, 2)
			require.Error(t, readReply(reply, place{1, 1}, buckets, []int{0, 1}, results))
			require.Equal(t, make([]ratelimit.Result, 2), results, "nothing is told")
		})
	}
	results := make([]ratelimit.Result, 2)
	require.NoError(t, readReply([]byte(sound), place{1, 1}, buckets, []int{0, 1}, results))
	require.Equal(t, ratelimit.Denied, results[1].Outcome)
}
