package redisbackend

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// markable are buckets that hardly give anything back in the time of a test.
var markable = []ratelimit.Bucket{take("tokens", tokenBucket(2, 1./1440)), take("log", slidingLog(2, 24*hour))}

// TestAMarkEndsWithinASecond is by the server's own clock.
func TestAMarkEndsWithinASecond(t *testing.T) {
	server, c := scriptServer(t)
	for _, b := range markable {
		t.Run(b.Limits.Kind.String(), func(t *testing.T) {
			require.NoError(t, server.SetClock(0))
			acquired(t, c, with(b, ratelimit.Reset, 1))
			full := with(b, ratelimit.Take, 2)
			reply, err := c.Do(context.Background(), appendArgs([]any{"EVALSHA", script.sha}, []ratelimit.Bucket{full}, []int{0}, true)...).Result()
			require.NoError(t, err)
			results := make([]ratelimit.Result, 1)
			require.NoError(t, readReply(reply, place{1, 1}, []ratelimit.Bucket{full}, []int{0}, results))
			require.Equal(t, ratelimit.Admitted, results[0].Outcome)
			require.False(t, results[0].Tentative)
			require.NoError(t, server.SetClock(time.Second))
			r := acquired(t, c, b)[0]
			require.Equal(t, ratelimit.Denied, r.Outcome)
			require.False(t, r.Tentative)
			near(t, 24*time.Hour, r.Wait)
		})
	}
}

func TestDenialsWhileTakesAreOpen(t *testing.T) {
	for _, b := range markable {
		t.Run(b.Limits.Kind.String(), func(t *testing.T) {
			s := newTimed(t)
			s.now += 12_345
			last := algorithm.NewMark(s.now).Left(s.now)
			require.Equal(t, ratelimit.Admitted, s.call(b, true).Outcome)
			s.now += 300_000
			require.Equal(t, ratelimit.Admitted, s.one(b).Outcome, "a write that cannot be undone keeps the end")
			end := s.now - 300_000 + last
			for _, now := range []int64{s.now, end - 65_537, end - 1} {
				s.now = now
				for _, op := range []ratelimit.Op{ratelimit.Take, ratelimit.Peek} {
					r := s.one(with(b, op, 1))
					require.Equal(t, ratelimit.Denied, r.Outcome)
					require.True(t, r.Tentative)
					require.Equal(t, duration(end-now), r.Wait)
				}
				never := s.one(with(b, ratelimit.Take, 3))
				require.Equal(t, ratelimit.FromNever, never.Source)
				require.False(t, never.Tentative)
			}
			s.now = end
			r := s.one(b)
			require.False(t, r.Tentative, "the last word")
			require.Greater(t, r.Wait, 23*time.Hour)
			require.Equal(t, r, s.one(b), "denials change nothing")
		})
	}
	t.Run("a wait that is shorter than the mark", func(t *testing.T) {
		s := newTimed(t)
		b := take("fast", tokenBucket(1, 600))
		s.call(b, true)
		r := s.one(b)
		require.True(t, r.Tentative)
		require.Equal(t, 100*time.Millisecond, r.Wait)
	})
	t.Run("what is undone is there again", func(t *testing.T) {
		for _, b := range markable {
			s := newTimed(t)
			s.one(b)
			r := s.call(b, true)
			require.True(t, s.one(b).Tentative)
			undo := with(b, ratelimit.Undo, 1)
			undo.Before, undo.At = r.Before, r.At
			s.now += 1000
			s.one(undo)
			require.Equal(t, ratelimit.Admitted, s.one(b).Outcome)
		}
	})
}

func TestAMarkTakesNoMemory(t *testing.T) {
	ctx := context.Background()
	s := newTimed(t)
	key := policy.NewKey(policy.Part{Name: "tenant", Value: "acme12345"}, "api-free", policy.Part{Name: "apiKey", Value: "ak_0123456789abcdef"})
	for _, test := range []struct {
		name   string
		limits algorithm.Limits
		step   int64
	}{
		{"as a rule", tokenBucket(20, 100), 1},
		{"a clock that is ahead", tokenBucket(20, 100), -1000},
		{"a large capacity", tokenBucket(1<<40-1, 1e9), 1},
		{"a log", slidingLog(2, hour), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := ratelimit.Bucket{Key: key, Limits: test.limits, Cost: 1, Op: ratelimit.Take}
			usage := func(open bool) int64 {
				require.NoError(t, s.client.Del(ctx, key.String()).Err())
				s.one(b)
				s.now += test.step
				require.Equal(t, ratelimit.Admitted, s.call(b, open).Outcome)
				require.Equal(t, open, s.one(with(b, ratelimit.Peek, uint64(test.limits.Capacity))).Tentative)
				n, err := s.client.MemoryUsage(ctx, key.String()).Result()
				require.NoError(t, err)
				return n
			}
			marked := usage(true)
			require.Equal(t, usage(false), marked)
			if test.limits.Kind == algorithm.TokenBucket {
				require.LessOrEqual(t, marked, int64(136))
			}
		})
	}
}

// TestStatesWithoutMarks reads states as they were written before there were marks.
func TestStatesWithoutMarks(t *testing.T) {
	s := newTimed(t)
	const capacity, ahead = 10, 1000
	tokens, log := tokenBucket(capacity, 1), slidingLog(capacity, hour)
	double := func(f float64) piece { return piece{math.Float64bits(f), 8} }
	us := func(n int64) piece { return piece{uint64(n), 7} }
	level, at := double(0.5), us(s.now-minute)
	header := []piece{double(capacity), us(hour), us(s.now - 3), us(0), us(0)}
	runs := []piece{us(s.now - 5), us(8), us(s.now - 3), us(9)}
	short := slices.Concat([]piece{{'l', 1}}, header, runs)
	long := slices.Concat([]piece{{'L', 1}}, header, runs[2:], []piece{{0, 4}, {2, 4}}, runs)
	for _, test := range []struct {
		name   string
		limits algorithm.Limits
		state  []byte
		left   float64
	}{
		{"tokens", tokens, pack(level, at, piece{capacity, 5}, double(tokens.Rate)), 1.5},
		{"tokens ahead of time", tokens, pack(level, at, piece{capacity, 5}, us(ahead)), 1.5},
		{"many tokens", tokens, pack(level, at, us(capacity), double(tokens.Rate), piece{ahead, 6}), 1.5},
		{"a log", log, pack(short...), 1},
		{"a log in place", log, pack(long...), 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := take(test.name, test.limits)
			require.NoError(t, s.client.Set(context.Background(), b.Key.String(), test.state, time.Hour).Err())
			require.InDelta(t, test.left, s.one(with(b, ratelimit.Peek, 1)).Remaining, 1e-9)
			r := s.one(with(b, ratelimit.Take, 2))
			require.Equal(t, ratelimit.Denied, r.Outcome)
			require.False(t, r.Tentative)
		})
	}
}

// piece is a number in so many bytes.
type piece struct {
	n    uint64
	size int
}

func pack(pieces ...piece) (out []byte) {
	for _, p := range pieces {
		out = append(out, binary.LittleEndian.AppendUint64(nil, p.n)[:p.size]...)
	}
	return out
}
