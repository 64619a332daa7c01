package storetest

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// tenYears is as long as the loader lets a bucket take to refill, in minutes.
const tenYears = 3650 * 24 * 60

var timeTests = []test{
	{name: "TestField rates 7, 13, 100, 1/60, 1/1440, 1/43200 per minute: the promised wait is exact", clock: true, run: func(f *fixture) {
		for _, capacity := range []float64{1, 20, 65535, 4294967295, 30000000000} {
			for _, rate := range []float64{7, 13, 100, 1. / 60, 1. / 1440, 1. / 43200, 6e8} {
				if capacity/rate > tenYears {
					continue
				}
				b := f.take(fmt.Sprint(capacity, "-", rate), TB(capacity, rate))
				for range 20 {
					if left := uint64(f.left(b)); left > 0 {
						f.admitted(with(b, ratelimit.Take, left))
					}
					f.promise(b, f.denied(b).Wait)
				}
			}
		}
	}},
	{name: "a log's promised wait is exact, also for a cost above one", clock: true, run: func(f *fixture) {
		b := f.take("log", SL(10, 30*time.Second))
		for i := range 10 {
			f.admitted(b)
			f.h.Advance(time.Duration(i+1) * 37 * time.Millisecond)
		}
		for _, cost := range []uint64{1, 4, 10, 1, 7} {
			f.drain(b)
			again := with(b, ratelimit.Take, cost)
			f.promise(again, f.denied(again).Wait)
		}
	}},
	{name: "a denial changes no state", clock: true, run: func(f *fixture) {
		for _, b := range []ratelimit.Bucket{f.take("tokens", TB(20, 7)), f.take("log", SL(20, time.Minute))} {
			for b.Cost = 3; f.one(b).Outcome == ratelimit.Admitted; {
				f.h.Advance(1001 * time.Microsecond)
			}
			b.Cost = 11
			wait := f.denied(b).Wait
			for wait > 100*time.Millisecond {
				f.h.Advance(wait/7 + 3*time.Microsecond)
				next := f.denied(b)
				require.Equal(f, wait-(wait/7+3*time.Microsecond).Truncate(time.Microsecond), next.Wait)
				wait = next.Wait
			}
			f.promise(b, wait)
		}
	}},
	{name: "a promised wait stands however often one asks meanwhile", clock: true, run: func(f *fixture) {
		random := rand.New(rand.NewPCG(1, 2))
		us := func(n int) time.Duration { return time.Duration(random.IntN(n)) * time.Microsecond }
		for i := range 500 {
			// A token takes a whole number of microseconds: then rounding decides whether the last one of a wait is needed.
			period := 10 + random.IntN(1_000_000)
			b := f.take(fmt.Sprint(i), TB(float64(1+random.IntN(50)), 60e6/float64(period)))
			for f.one(b).Outcome == ratelimit.Admitted {
				f.h.Advance(us(period / 2))
			}
			wait := f.denied(b).Wait
			for range 20 {
				d := us(int(wait.Microseconds()/4) + 1)
				f.h.Advance(d)
				require.Equal(f, wait-d, f.denied(b).Wait, "%+v", b.Limits)
				wait -= d
			}
			f.promise(b, wait)
		}
	}},
	{name: "TestField TB{1, 100}: waiting the rounded Retry-After is admitted, 200 keys out of 200", clock: true, run: func(f *fixture) {
		for i := range 200 {
			b := f.take(fmt.Sprint(i), TB(1, 100))
			f.admitted(b)
			wait := f.denied(b).Wait
			require.Equal(f, 600*time.Millisecond, wait)
			f.h.Advance(time.Second)
			f.admitted(b)
		}
	}},
	{name: "tokens refill continuously, never above capacity", clock: true, run: func(f *fixture) {
		b := f.take("tokens", TB(20, 60))
		f.admitted(with(b, ratelimit.Take, 10))
		f.h.Advance(1500 * time.Millisecond)
		require.InDelta(f, 11.5, f.left(b), 1e-9)
		f.h.Advance(time.Hour)
		require.Equal(f, 20.0, f.left(b))
		require.Equal(f, 20, f.drain(b))
	}},
	{name: "TestField SL{10, 5 s}: no 5 s window holds more than 10", clock: true, run: func(f *fixture) {
		b := f.take("log", SL(10, 5*time.Second))
		now, admitted := 4900*time.Millisecond, []time.Duration(nil)
		f.h.Advance(now)
		for range 10 {
			f.admitted(b)
			admitted = append(admitted, now)
		}
		for range 100 {
			f.h.Advance(100 * time.Millisecond)
			now += 100 * time.Millisecond
			if f.one(b).Outcome == ratelimit.Admitted {
				admitted = append(admitted, now)
			}
		}
		require.Len(f, admitted, 21, "as many as fit, all the same")
		for i := 10; i < len(admitted); i++ {
			require.GreaterOrEqual(f, admitted[i]-admitted[i-10], 5*time.Second)
		}
	}},
	{name: "a log says when its oldest entry leaves", clock: true, run: func(f *fixture) {
		b := f.take("log", SL(3, 30*time.Second))
		require.Zero(f, f.one(with(b, ratelimit.Peek, 1)).Reset)
		require.Equal(f, 30*time.Second, f.admitted(b).Reset)
		f.h.Advance(10 * time.Second)
		require.Equal(f, 20*time.Second, f.admitted(with(b, ratelimit.Take, 2)).Reset)
		require.Equal(f, 20*time.Second, f.denied(b).Reset)
		f.h.Advance(20 * time.Second)
		require.Equal(f, 10*time.Second, f.one(with(b, ratelimit.Peek, 1)).Reset)
	}},
	{name: "a refund removes a log's newest entries", clock: true, run: func(f *fixture) {
		b := f.take("log", SL(2, 30*time.Second))
		f.admitted(b)
		f.h.Advance(10 * time.Second)
		f.admitted(b)
		f.admitted(with(b, ratelimit.Refund, 1))
		f.h.Advance(10 * time.Second)
		f.admitted(b)
		require.Equal(f, 10*time.Second, f.denied(b).Wait)
	}},
	{name: "an undo removes a log's entries of that take", clock: true, run: func(f *fixture) {
		b := f.take("log", SL(2, 30*time.Second))
		first := f.admitted(b)
		f.h.Advance(10 * time.Second)
		f.admitted(b)
		f.h.Advance(5 * time.Second)
		f.admitted(undo(b, first))
		f.h.Advance(5 * time.Second)
		f.admitted(b)
		require.Equal(f, 20*time.Second, f.denied(b).Wait)
	}},
	{name: "an undo does not give back what refilled meanwhile", clock: true, run: func(f *fixture) {
		b := f.take("tokens", TB(10, 60))
		b.Cost = 8
		r := f.admitted(b)
		f.h.Advance(5 * time.Second)
		require.InDelta(f, 7, f.left(b), 1e-9)
		f.admitted(with(b, ratelimit.Take, 7))
		require.InDelta(f, 3, f.admitted(undo(b, r)).Remaining, 1e-9, "five ran into the brim")
		b.Cost = 2
		r = f.admitted(b)
		f.h.Advance(time.Second)
		require.InDelta(f, 4, f.admitted(undo(b, r)).Remaining, 1e-9, "nothing ran into the brim")
	}},
	{name: "TestField the clock steps back 1 h, then forward: tokens", clock: true, run: func(f *fixture) { clockBackTokens(f) }},
	{name: "TestField the clock steps back 1 h, then forward: log", clock: true, run: func(f *fixture) { clockBackLog(f) }},
}

func (f *fixture) needStepBack() {
	f.Helper()
	if f.h.StepBack == nil {
		f.Skip("the store's clock cannot be moved back")
	}
}

// clockBackTokens checks that a bucket still admits its rate, and mints nothing, over a step back and one forward.
func clockBackTokens(f *fixture) {
	f.needStepBack()
	b := f.take("tokens", TB(10, 60))
	f.h.Advance(2 * time.Hour)
	require.Equal(f, 10, f.drain(b))
	for _, step := range []func(){
		func() { f.h.StepBack(time.Hour) },
		func() { f.h.Advance(time.Hour) },
	} {
		step()
		require.Zero(f, f.drain(b), "tokens minted by a step")
		admitted := 0
		for range 120 {
			f.h.Advance(500 * time.Millisecond)
			admitted += f.drain(b)
		}
		require.InDelta(f, 60, admitted, 1)
	}
}

// clockBackLog checks that a log's wait is never longer than its window.
func clockBackLog(f *fixture) {
	f.needStepBack()
	b := f.take("log", SL(10, time.Minute))
	f.h.Advance(2 * time.Hour)
	for _, step := range []func(){
		func() {},
		func() { f.h.StepBack(time.Hour) },
		func() { f.h.Advance(time.Hour) },
	} {
		step()
		admitted := f.drain(b)
		for range 4 {
			wait := f.denied(b).Wait
			require.LessOrEqual(f, wait, time.Minute)
			f.h.Advance(wait)
			admitted += f.drain(b)
		}
		require.GreaterOrEqual(f, admitted, 40)
		require.LessOrEqual(f, admitted, 50)
	}
}
