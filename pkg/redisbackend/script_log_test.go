package redisbackend

import (
	"context"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// timed has a script decide at times of the test's own.
type timed struct {
	testing.TB
	client *redis.Client
	script luaScript
	now    int64
}

func newTimed(t testing.TB) *timed {
	_, c := scriptServer(t)
	s := underTestClock(t, script.source)
	load(t, c, s)
	return &timed{TB: t, client: c, script: s, now: 1_800_000_000_000_000}
}

func (s *timed) one(b ratelimit.Bucket) ratelimit.Result {
	s.Helper()
	return s.call(b, false)
}

// call is a call whose take, if open, may yet be undone.
func (s *timed) call(b ratelimit.Bucket, open bool) ratelimit.Result {
	s.Helper()
	buckets, results := []ratelimit.Bucket{b}, make([]ratelimit.Result, 1)
	args := append(appendArgs([]any{"EVALSHA", s.script.sha}, buckets, []int{0}, open), s.now)
	reply, err := s.client.Do(context.Background(), args...).Result()
	require.NoError(s, err)
	require.NoError(s, readReply(reply, place{1, 1}, buckets, []int{0}, results))
	return results[0]
}

func TestALargeLog(t *testing.T) {
	s := newTimed(t)
	b := take("log", slidingLog(500, hour))
	var stamps []int64
	for range 500 {
		s.now += 1000
		stamps = append(stamps, s.now)
		require.Equal(t, ratelimit.Admitted, s.one(b).Outcome)
	}
	t.Run("a wait for any cost", func(t *testing.T) {
		for _, cost := range []uint64{1, 2, 63, 64, 65, 250, 499, 500} {
			r := s.one(with(b, ratelimit.Peek, cost))
			require.Equal(t, duration(stamps[cost-1]+hour-s.now), r.Wait, "cost %d", cost)
		}
	})
	t.Run("an undo in the middle", func(t *testing.T) {
		u := with(b, ratelimit.Undo, 1)
		u.At = stamps[300]
		require.Equal(t, 1.0, s.one(u).Remaining)
		require.Equal(t, 1.0, s.one(u).Remaining, "once")
		stamps = slices.Delete(stamps, 300, 301)
		require.Equal(t, duration(stamps[400]+hour-s.now), s.one(with(b, ratelimit.Peek, 402)).Wait)
	})
	t.Run("a refund of the newest", func(t *testing.T) {
		require.Equal(t, 101.0, s.one(with(b, ratelimit.Refund, 100)).Remaining)
		stamps = stamps[:399]
		require.Equal(t, duration(stamps[398]+hour-s.now), s.one(with(b, ratelimit.Peek, 500)).Wait)
	})
	t.Run("what has left", func(t *testing.T) {
		s.now = stamps[100] + hour
		require.Equal(t, float64(500-298), s.one(with(b, ratelimit.Peek, 1)).Remaining)
		require.Equal(t, float64(500-299), s.one(b).Remaining)
		require.Equal(t, duration(stamps[101]+hour-s.now), s.one(with(b, ratelimit.Peek, 1)).Reset)
	})
	t.Run("becomes tokens", func(t *testing.T) {
		tokens := b
		tokens.Limits = tokenBucket(1000, 1)
		require.Equal(t, float64(2*(500-299)), s.one(with(tokens, ratelimit.Peek, 1)).Remaining)
	})
	t.Run("and a log again", func(t *testing.T) {
		require.Equal(t, float64(500-299), s.one(with(b, ratelimit.Peek, 1)).Remaining)
	})
}

// TestALogTooLargeToBeExact checks that a limit above which stamps are rounded is never more generous for that, and still
// keeps what it promises.
func TestALogTooLargeToBeExact(t *testing.T) {
	s := newTimed(t)
	const limit, window = 200_000, 65_536 * 1000
	b := take("log", slidingLog(limit, window))
	admitted, taken := map[int64]uint64{}, uint64(0)
	for i := range 3000 {
		s.now += 123_457
		b.Cost = uint64(1 + i*7919%2000)
		r := s.one(b)
		if r.Outcome == ratelimit.Denied {
			s.now += r.Wait.Microseconds() - 1
			require.Equal(t, ratelimit.Denied, s.one(b).Outcome)
			s.now++
			r = s.one(b)
		}
		require.Equal(t, ratelimit.Admitted, r.Outcome)
		require.GreaterOrEqual(t, r.At, s.now)
		require.Less(t, r.At, s.now+1000)
		admitted[s.now] += b.Cost
		taken += b.Cost
		for at, n := range admitted {
			if at <= s.now-window {
				taken -= n
				delete(admitted, at)
			}
		}
		require.LessOrEqual(t, taken, uint64(limit))
	}
	u := with(b, ratelimit.Take, 1)
	s.now += window + 1000
	r := s.one(u)
	u.Op, u.At = ratelimit.Undo, r.At
	require.Equal(t, float64(limit), s.one(u).Remaining)
}

func TestTwoInstancesOneStillOnTheOldAlgorithm(t *testing.T) {
	for name, other := range map[string]float64{"equal limits": 100, "a smaller one": 7, "a larger one": 1000} {
		t.Run(name, func(t *testing.T) {
			s := newTimed(t)
			tokens, log := take("a", tokenBucket(100, 60)), take("a", slidingLog(other, hour))
			admitted := 0
			for i := range 10_000 {
				s.now += 1000
				b := tokens
				if i%2 == 0 {
					b = log
				}
				if s.one(b).Outcome == ratelimit.Admitted {
					admitted++
				}
			}
			require.LessOrEqual(t, admitted, 100+int(other)+10)
			require.Positive(t, admitted)
		})
	}
}
