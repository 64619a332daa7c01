package algorithm_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

const (
	second = int64(1e6)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * hour
)

func tokenBucket(capacity, perMinute float64) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: capacity, Rate: perMinute / 60e6}
}

func TestTokenBucketSteps(t *testing.T) {
	type step struct {
		at   int64
		cost uint64
		want bool
		left float64
		wait int64
	}
	for _, c := range []struct {
		name   string
		limits algorithm.Limits
		steps  []step
	}{
		{"a burst, then the rate", tokenBucket(3, 60), []step{
			{0, 1, true, 2, 0},
			{0, 2, true, 0, 0},
			{0, 1, false, 0, second},
			{second - 1, 1, false, 1 - 1e-6, 1},
			{second, 1, true, 0, 0},
			{second, 3, false, 0, 3 * second},
			{4 * second, 3, true, 0, 0},
		}},
		{"never above capacity", tokenBucket(2, 60), []step{
			{0, 1, true, 1, 0},
			{day, 2, true, 0, 0},
			{day, 1, false, 0, second},
		}},
		{"more than the capacity: never", tokenBucket(2, 60), []step{
			{0, 3, false, 2, algorithm.Never},
			{day, 3, false, 2, algorithm.Never},
		}},
		{"all of it at once", tokenBucket(2, 60), []step{{0, 2, true, 0, 0}}},
		{"capacity 0: never", tokenBucket(0, 60), []step{
			{0, 1, false, 0, algorithm.Never},
			{day, 1, false, 0, algorithm.Never},
		}},
		{"rate 0: what is in it, then never", tokenBucket(1, 0), []step{
			{0, 1, true, 0, 0},
			{day, 1, false, 0, algorithm.Never},
		}},
		{"a cost that float64 does not resolve", tokenBucket(1e15-1, 6e8), []step{
			{0, 1<<64 - 1, false, 1e15 - 1, algorithm.Never},
			{0, 1e15 - 1, true, 0, 0},
			{0, 1e15 - 1, false, 0, 1e14},
		}},
		{"ten tokens a microsecond", tokenBucket(20, 6e8), []step{
			{0, 20, true, 0, 0},
			{0, 1, false, 0, 1},
			{0, 11, false, 0, 2},
			{1, 11, false, 10, 1},
			{1, 10, true, 0, 0},
		}},
		{"the clock steps back and forth", tokenBucket(2, 60), []step{
			{hour, 2, true, 0, 0},
			{0, 1, false, 0, second},
			{second / 2, 1, false, 0.5, second / 2},
			{second, 1, true, 0, 0},
			{second, 1, false, 0, second},
			{hour + second, 1, false, 0, second}, // as late as the bucket's own clock
			{hour + 2*second, 1, true, 0, 0},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := algorithm.NewTokens(c.limits, 0)
			for i, step := range c.steps {
				require.Equal(t, step.wait, s.Wait(c.limits, step.cost, step.at), "step %d", i)
				next, admitted := s.Take(c.limits, step.cost, step.at)
				require.Equal(t, step.want, admitted, "step %d", i)
				if !admitted {
					require.Equal(t, s.Level, next.Level, "a denial changes no state")
					require.Equal(t, s.Last, next.Last, "a denial changes no state")
				}
				s = next
				require.InDelta(t, step.left, s.Remaining(c.limits, step.at), 1e-9, "step %d", i)
			}
		})
	}
}

// tenYears is as long as the loader lets a bucket take to refill, in minutes.
const tenYears = 10 * 365 * 24 * 60

func TestField_ThePromisedWaitIsExact(t *testing.T) {
	for _, capacity := range []float64{1, 20, 65535, 4294967295, 30000000000} {
		for _, rate := range []float64{7, 13, 100, 1. / 60, 1. / 1440, 1. / 43200, 1, 6e8} {
			t.Run(fmt.Sprint(capacity, " at ", rate, " per minute"), func(t *testing.T) {
				if capacity/rate > tenYears {
					t.Log("refused by the loader, right all the same")
				}
				l := tokenBucket(capacity, rate)
				s, _ := algorithm.NewTokens(l, 0).Take(l, uint64(capacity), 0)
				checkPromises(t, l, s)
			})
		}
	}
}

// checkPromises waits as long as told for many costs and times, and checks that it was neither too long nor too short.
func checkPromises(t *testing.T, l algorithm.Limits, s algorithm.Tokens) {
	t.Helper()
	now := s.Last
	for i, cost := range []uint64{1, 1, 3, 1, 20, uint64(l.Capacity/2) + 1, 1, 1, uint64(l.Capacity)} {
		cost = min(cost, uint64(l.Capacity))
		wait := s.Wait(l, cost, now)
		if wait > 1<<53 {
			return // 285 years: float64 does not tell one microsecond from the next
		}
		if wait > 0 {
			_, early := s.Take(l, cost, now+wait-1)
			require.False(t, early, "cost %d, 1 us before %d us have passed", cost, wait)
		}
		now += wait
		next, admitted := s.Take(l, cost, now)
		require.True(t, admitted, "cost %d after %d us", cost, wait)
		s, now = next, now+int64(i)*1_234_567
	}
}

func TestField_CapacityByRateRightAnswers(t *testing.T) {
	for _, capacity := range []float64{1, 20, 65535, 4294967295, 30000000000} {
		for _, rate := range []float64{1. / 43200, 1, 6e8} {
			l := tokenBucket(capacity, rate)
			s := algorithm.NewTokens(l, 0)
			require.Equal(t, capacity, s.Remaining(l, 0))
			s, admitted := s.Take(l, uint64(capacity), 0)
			require.True(t, admitted)
			require.Zero(t, s.Level)
			exact := capacity / l.Rate
			wait := s.Wait(l, uint64(capacity), 0)
			if exact >= 1<<62 {
				require.Equal(t, int64(algorithm.Never), wait)
				continue
			}
			require.InEpsilon(t, exact, float64(wait), 1e-6+1/exact)
			require.GreaterOrEqual(t, s.Remaining(l, wait), capacity)
		}
	}
}

func TestField_TB1At100WaitsARoundSecond(t *testing.T) {
	l := tokenBucket(1, 100)
	for key := range int64(200) {
		start := key * 7919
		s, admitted := algorithm.NewTokens(l, start).Take(l, 1, start)
		require.True(t, admitted)
		wait := s.Wait(l, 1, start)
		require.Equal(t, int64(600_000), wait)
		retryAfter := (wait + second - 1) / second
		require.Equal(t, int64(1), retryAfter)
		_, admitted = s.Take(l, 1, start+retryAfter*second)
		require.True(t, admitted)
	}
}

func TestField_WallClockStepsBackTokens(t *testing.T) {
	l := tokenBucket(10, 60)
	now := 5 * hour
	s := algorithm.NewTokens(l, now)
	run := func(seconds int64) (admitted int) {
		for range 2 * seconds {
			for {
				var ok bool
				if s, ok = s.Take(l, 1, now); !ok {
					break
				}
				admitted++
			}
			now += second / 2
		}
		return admitted
	}
	require.InDelta(t, 10+600, run(600), 1)
	now -= hour
	require.InDelta(t, 600, run(600), 1, "after the step back")
	now += hour
	require.InDelta(t, 600, run(600), 1, "after the step forward")
}

func TestTokenBucketChangesOfPolicy(t *testing.T) {
	t.Run("TestField TB capacity 1000, one call, reload capacity 10: 10 more", func(t *testing.T) {
		s, _ := algorithm.NewTokens(tokenBucket(1000, 1), 0).Take(tokenBucket(1000, 1), 1, 0)
		require.Equal(t, 10.0, s.Remaining(tokenBucket(10, 1), 0))
	})
	t.Run("a higher capacity adds nothing", func(t *testing.T) {
		s, _ := algorithm.NewTokens(tokenBucket(10, 1), 0).Take(tokenBucket(10, 1), 4, 0)
		require.Equal(t, 6.0, s.Remaining(tokenBucket(1000, 1), 0))
	})
	t.Run("TestField drained at 10, rate raised 100 times: next admit 100 times sooner", func(t *testing.T) {
		s, _ := algorithm.NewTokens(tokenBucket(10, 6), 0).Take(tokenBucket(10, 6), 10, 0)
		require.Equal(t, 10*second, s.Wait(tokenBucket(10, 6), 1, 0))
		require.Equal(t, second/10, s.Wait(tokenBucket(10, 600), 1, 0))
	})
	t.Run("the time since the last charge is credited at the rate in force", func(t *testing.T) {
		s, _ := algorithm.NewTokens(tokenBucket(100, 60), 0).Take(tokenBucket(100, 60), 100, 0)
		require.InDelta(t, 20, s.Remaining(tokenBucket(100, 120), 10*second), 1e-9)
	})
}

func TestTokenBucketGivingBack(t *testing.T) {
	l := tokenBucket(10, 60)
	full := algorithm.NewTokens(l, 0)
	for _, c := range []struct {
		name       string
		held       int64
		otherTakes uint64
		want       float64
	}{
		{"at once", 0, 0, 10},
		{"nothing ran over", 2 * second, 5, 5}, // full, so that all refill would have run over
		{"all of it ran over", 8 * second, 5, 5},
		{"others took it all", 2 * second, 4, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _ := full.Take(l, 8, 0)
			s, admitted := s.Take(l, min(c.otherTakes, uint64(s.Remaining(l, c.held))), c.held)
			require.True(t, admitted)
			taken := min(float64(c.otherTakes), 2+float64(c.held)/1e6)
			require.InDelta(t, 10-taken, s.Undo(l, 8, 10, 0, c.held).Level, 1e-9)
		})
	}
	t.Run("part of it would have run over", func(t *testing.T) {
		s, _ := full.Take(l, 6, 0) // 4
		before := s.Level
		s, _ = s.Take(l, 3, 0)        // 1
		s, _ = s.Take(l, 1, 8*second) // 8
		// Without the take: 4, after 8 s 10 instead of 12, so one fewer by the other take is 9.
		require.InDelta(t, 9, s.Undo(l, 3, before, 0, 8*second).Level, 1e-9)
	})
	t.Run("a refund is clamped", func(t *testing.T) {
		s, _ := full.Take(l, 4, 0)
		require.Equal(t, 9.0, s.Refund(l, 3, 0).Level)
		require.Equal(t, 10.0, s.Refund(l, 1<<63, 0).Level)
	})
}

func TestTokenBucketForce(t *testing.T) {
	l := tokenBucket(10, 60)
	for _, c := range []struct {
		name      string
		level     float64
		cost      uint64
		overdraft float64
		want      float64
		uncharged uint64
	}{
		{"there is enough", 10, 4, 0, 6, 0},
		{"not enough, no debt allowed", 3, 4, 0, 0, 1},
		{"whole tokens only", 3.5, 4, 0, 0.5, 1},
		{"into debt", 3, 10, 10, -7, 0},
		{"as far as allowed", 3, 100, 10, -10, 87},
		{"a part of a token is room for none", -9.5, 5, 10, -9.5, 5},
		{"deeper in debt than a new policy allows", -8, 5, 2, -8, 5},
		{"the largest cost", 10, math.MaxUint64, 0, 0, math.MaxUint64 - 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, uncharged := algorithm.Tokens{Level: c.level}.Force(l, c.cost, c.overdraft, 0)
			require.Equal(t, c.want, s.Level)
			require.Equal(t, c.uncharged, uncharged)
		})
	}
}

func TestFullIn(t *testing.T) {
	l := tokenBucket(10, 60)
	s := algorithm.NewTokens(l, 0)
	require.Zero(t, s.FullIn(l, 0))
	s, _ = s.Take(l, 3, 0)
	require.Equal(t, 3*second, s.FullIn(l, 0))
	require.Equal(t, second, s.FullIn(l, 2*second))
	require.Zero(t, s.FullIn(l, hour))
	require.Equal(t, int64(algorithm.Never), s.FullIn(tokenBucket(10, 0), 0))
	debt, _ := s.Force(l, 12, 100, 0)
	require.Equal(t, 15*second, debt.FullIn(l, 0))
}
