package algorithm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

func slidingLog(limit float64, window int64) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: limit, Window: window}
}

func newLog(runs int) *algorithm.Log {
	g := algorithm.NewLog(make([]algorithm.Run, runs))
	return &g
}

func TestSlidingLogSteps(t *testing.T) {
	type step struct {
		at    int64
		cost  uint64
		want  bool
		left  uint64
		wait  int64
		reset int64
	}
	for _, c := range []struct {
		name   string
		limits algorithm.Limits
		steps  []step
	}{
		{"fills and slides", slidingLog(3, 10*second), []step{
			{0, 1, true, 2, 0, 10 * second},
			{2 * second, 2, true, 0, 0, 8 * second},
			{2 * second, 1, false, 0, 8 * second, 8 * second},
			{10*second - 1, 1, false, 0, 1, 1},
			{10 * second, 1, true, 0, 0, 2 * second},
			{12*second - 1, 2, false, 0, 1, 1},
			{12 * second, 2, true, 0, 0, 8 * second},
		}},
		{"a cost waits for as many to leave", slidingLog(3, 10*second), []step{
			{0, 1, true, 2, 0, 10 * second},
			{second, 1, true, 1, 0, 9 * second},
			{2 * second, 1, true, 0, 0, 8 * second},
			{3 * second, 2, false, 0, 8 * second, 7 * second},
			{3 * second, 3, false, 0, 9 * second, 7 * second},
			{3 * second, 4, false, 0, algorithm.Never, 7 * second},
			{12 * second, 3, true, 0, 0, 10 * second},
		}},
		{"limit 0: never", slidingLog(0, second), []step{{0, 1, false, 0, algorithm.Never, 0}}},
		{"the largest limit and costs", slidingLog(1e15-1, hour), []step{
			{0, 1<<64 - 1, false, 1e15 - 1, algorithm.Never, 0},
			{0, 1e15 - 1, true, 0, 0, hour},
			{1, 1, false, 0, hour - 1, hour - 1},
		}},
		{"the clock steps back", slidingLog(2, minute), []step{
			{hour, 1, true, 1, 0, minute},
			{second, 1, true, 0, 0, minute},
			{2 * second, 1, false, 0, minute - second, minute - second},
			{minute + second, 1, true, 1, 0, minute},
			{hour + 2*minute, 2, true, 0, 0, minute},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newLog(8)
			for i, step := range c.steps {
				require.Equal(t, step.wait, g.Wait(c.limits, step.cost, step.at), "step %d", i)
				before := *g
				require.Equal(t, step.want, g.Take(c.limits, step.cost, step.at), "step %d", i)
				if !step.want {
					require.Equal(t, before, *g, "a denial changes no state")
				}
				require.Equal(t, step.left, g.Remaining(c.limits, step.at), "step %d", i)
				require.Equal(t, step.reset, g.Reset(c.limits, step.at), "step %d", i)
			}
		})
	}
}

func TestField_SL10In5SecondsNoWindowHoldsMore(t *testing.T) {
	l := slidingLog(10, 5*second)
	g := newLog(10)
	var admitted []int64
	for now, i := int64(4_900_000), 0; now <= 15*second; i++ {
		if g.Take(l, 1, now) {
			admitted = append(admitted, now)
		}
		if i >= 10 {
			now += second / 10
		}
	}
	require.Len(t, admitted, 22)
	for i := 10; i < len(admitted); i++ {
		require.GreaterOrEqual(t, admitted[i]-admitted[i-10], 5*second)
	}
}

func TestField_SL5ReloadWithLimit2(t *testing.T) {
	five, two := slidingLog(5, 30*second), slidingLog(2, 30*second)
	g := newLog(5)
	for i := range int64(5) {
		require.True(t, g.Take(five, 1, i*2*second))
	}
	now := 10 * second
	wait := g.Wait(two, 1, now)
	require.Equal(t, 6*second+30*second-now, wait, "until the fourth-oldest leaves")
	require.False(t, g.Take(two, 1, now+wait-1))
	require.True(t, g.Take(two, 1, now+wait))
}

func TestField_Limit0OrCapacity0DeniesEveryCall(t *testing.T) {
	for now := range int64(100) {
		require.False(t, newLog(1).Take(slidingLog(0, second), 1, now*second))
		_, admitted := algorithm.NewTokens(tokenBucket(0, 1), 0).Take(tokenBucket(0, 1), 1, now*second)
		require.False(t, admitted)
	}
}

func TestField_WallClockStepsBackLog(t *testing.T) {
	l := slidingLog(10, minute)
	g := newLog(10)
	now := 5 * hour
	for _, step := range []int64{0, -hour, hour} {
		now += step
		admitted := 0
		for range 5 {
			for g.Take(l, 1, now) {
				admitted++
			}
			wait := g.Wait(l, 1, now)
			require.Positive(t, wait)
			require.LessOrEqual(t, wait, minute)
			now += wait
		}
		require.GreaterOrEqual(t, admitted, 40, "after a step of %d us", step)
	}
}

func TestSlidingLogGivingBack(t *testing.T) {
	l := slidingLog(10, minute)
	filled := func() *algorithm.Log {
		g := newLog(4)
		for i := range int64(4) {
			require.True(t, g.Take(l, uint64(i+1), i*second))
		}
		return g
	}
	for _, c := range []struct {
		name  string
		do    func(g *algorithm.Log)
		left  uint64
		waits []int64 // for costs 1, 4, 10 at 4 s
	}{
		{"nothing", func(*algorithm.Log) {}, 0, []int64{56, 58, 59}},
		{"undo of the oldest", func(g *algorithm.Log) { g.Undo(l, 1, 0, 4*second) }, 1, []int64{0, 58, 59}},
		{"undo of one between", func(g *algorithm.Log) { g.Undo(l, 2, second, 4*second) }, 2, []int64{0, 58, 59}},
		{"undo of a part of those at one time", func(g *algorithm.Log) { g.Undo(l, 1, 2*second, 4*second) }, 1, []int64{0, 57, 59}},
		{"undo of more than there are", func(g *algorithm.Log) { g.Undo(l, 100, 3*second, 4*second) }, 4, []int64{0, 0, 58}},
		{"undo of what is not there", func(g *algorithm.Log) { g.Undo(l, 1, 2*second+1, 4*second) }, 0, []int64{56, 58, 59}},
		{"refund of the newest", func(g *algorithm.Log) { g.Refund(l, 2, 4*second) }, 2, []int64{0, 57, 59}},
		{"refund over several", func(g *algorithm.Log) { g.Refund(l, 8, 4*second) }, 8, []int64{0, 0, 57}},
		{"refund of all and more", func(g *algorithm.Log) { g.Refund(l, 1<<63, 4*second) }, 10, []int64{0, 0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := filled()
			c.do(g)
			require.Equal(t, c.left, g.Remaining(l, 4*second))
			for i, cost := range []uint64{1, 4, 10} {
				require.Equal(t, c.waits[i]*second, g.Wait(l, cost, 4*second), "cost %d", cost)
			}
		})
	}
}

func TestSlidingLogForce(t *testing.T) {
	l := slidingLog(5, minute)
	g := newLog(2)
	require.Zero(t, g.Force(l, 3, 0))
	require.Equal(t, uint64(1), g.Force(l, 3, second))
	require.Zero(t, g.Remaining(l, second))
	before := *g
	require.Equal(t, uint64(7), g.Force(l, 7, 2*second))
	require.Equal(t, before, *g)
	require.Zero(t, g.Force(l, 3, minute))
}

func TestALogWithoutRoomIsStricterOnly(t *testing.T) {
	l := slidingLog(100, minute)
	small, big := newLog(4), newLog(100)
	for now := int64(0); now < 10*minute; now += 317_000 {
		fits := big.Take(l, 1, now)
		if small.Take(l, 1, now) {
			require.True(t, fits || small.Count(l, now) <= 100)
		}
		require.LessOrEqual(t, small.Runs(), 4)
		require.Equal(t, 4, small.Room())
		require.LessOrEqual(t, small.Wait(l, 1, now), minute)
	}
	require.Equal(t, 100-small.Remaining(l, 10*minute), small.Count(l, 10*minute))
}

func TestGrowKeepsWhatTheLogSays(t *testing.T) {
	l := slidingLog(50, minute)
	g, want := newLog(1), newLog(50)
	for i := range int64(200) {
		now := i * 2 * second
		if g.Forget(l, now); g.Full(now) {
			g.Grow(make([]algorithm.Run, g.Room()+3))
		}
		require.Equal(t, want.Take(l, 1, now), g.Take(l, 1, now))
		require.Equal(t, want.Wait(l, 30, now), g.Wait(l, 30, now))
		require.Equal(t, want.Count(l, now), g.Count(l, now))
	}
	require.Greater(t, g.Room(), 30)
}
