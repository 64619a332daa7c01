package storetest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// under is the same bucket after a reload with other limits.
func under(b ratelimit.Bucket, l algorithm.Limits) ratelimit.Bucket {
	b.Limits = l
	return b
}

var changeTests = []test{
	{name: "TestField TB capacity 1000, one call, reload capacity 10: 10 more", run: func(f *fixture) {
		b := f.take("tokens", TB(1000, slow))
		f.admitted(b)
		require.Equal(f, 10, f.drain(under(b, TB(10, slow))))
	}},
	{name: "a higher capacity adds nothing", run: func(f *fixture) {
		b := f.take("tokens", TB(10, slow))
		f.admitted(with(b, ratelimit.Take, 7))
		require.Equal(f, 3, f.drain(under(b, TB(1000, slow))))
	}},
	{name: "TestField drained at 10, rate raised 100 times: next admit 100 times sooner", clock: true, run: func(f *fixture) {
		b := f.take("tokens", TB(10, 6))
		require.Equal(f, 10, f.drain(b))
		require.Equal(f, 10*time.Second, f.denied(b).Wait)
		b = under(b, TB(10, 600))
		require.Equal(f, 100*time.Millisecond, f.denied(b).Wait)
		f.promise(b, 100*time.Millisecond)
	}},
	{name: "a denial under a slower rate keeps the bucket as long as that needs", clock: true, run: func(f *fixture) {
		b := f.take("tokens", TB(10, 600))
		require.Equal(f, 10, f.drain(b))
		f.h.Advance(50 * time.Millisecond)
		b = under(b, TB(10, 0.6))
		wait := f.denied(b).Wait
		f.h.Advance(30 * time.Second)
		require.Equal(f, wait-30*time.Second, f.denied(b).Wait)
		f.promise(b, wait-30*time.Second)
	}},
	{name: "a denial under a longer window keeps the log as long as that needs", clock: true, run: func(f *fixture) {
		b := f.take("log", SL(2, time.Second))
		require.Equal(f, 2, f.drain(b))
		b = under(b, SL(2, time.Hour))
		require.Equal(f, time.Hour, f.denied(b).Wait)
		f.h.Advance(30 * time.Minute)
		f.promise(b, f.denied(b).Wait)
	}},
	{name: "TestField SL{5, 30 s}, 5 admitted 2 s apart, reload with limit 2", clock: true, run: func(f *fixture) {
		b := f.take("log", SL(5, 30*time.Second))
		for range 5 {
			f.admitted(b)
			f.h.Advance(2 * time.Second)
		}
		b = under(b, SL(2, 30*time.Second))
		r := f.denied(b)
		require.Zero(f, r.Remaining)
		require.Equal(f, 26*time.Second, r.Wait, "until the fourth-oldest leaves")
		f.promise(b, r.Wait)
	}},
	{name: "tokens become log entries, rounded up", clock: true, run: func(f *fixture) {
		b := f.take("a", TB(10, slow))
		f.admitted(with(b, ratelimit.Take, 3))
		b = under(b, SL(25, time.Minute))
		require.Equal(f, 17.0, f.left(b), "7.5 of 25 are spent")
		require.Equal(f, 17, f.drain(b))
		f.promise(b, time.Minute)
	}},
	{name: "log entries become tokens, rounded down", clock: true, run: func(f *fixture) {
		b := f.take("a", SL(10, time.Minute))
		f.admitted(with(b, ratelimit.Take, 3))
		b = under(b, TB(25, 60))
		require.Equal(f, 17, f.drain(b))
		f.promise(b, time.Second)
	}},
	{name: "a wait promised right after a change of algorithm is kept", clock: true, run: func(f *fixture) {
		b := f.take("a", TB(10, 1))
		require.Equal(f, 10, f.drain(b))
		b = under(b, SL(10, time.Minute))
		require.Equal(f, time.Minute, f.denied(b).Wait)
		f.h.Advance(20 * time.Second)
		require.Equal(f, 40*time.Second, f.denied(b).Wait)
		f.promise(b, 40*time.Second)
	}},
}
