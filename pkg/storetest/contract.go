package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

var contractTests = []test{
	{name: "results have the order and length of the buckets", run: func(f *fixture) {
		for _, n := range []int{0, 1, 2, 7, 8, 9, 40} {
			var buckets []ratelimit.Bucket
			for i := range n {
				l := TB(float64(100+i), 1)
				if i%2 == 1 {
					l = SL(float64(100+i), time.Hour)
				}
				buckets = append(buckets, f.take(fmt.Sprintf("%d-of-%d", i, n), l))
			}
			for i, r := range f.all(buckets...) {
				require.Equal(f, float64(99+i), r.Remaining)
			}
		}
	}},
	{name: "a results slice with room is used, whatever is in it", run: func(f *fixture) {
		stale := ratelimit.Result{Outcome: ratelimit.Denied, Err: errors.New("stale"), Wait: 1, Tentative: true, Uncharged: 1, Reset: 1, Remaining: 1}
		room := []ratelimit.Result{stale, stale, stale}
		buckets := []ratelimit.Bucket{f.take("a", TB(5, 1)), f.take("b", TB(6, 1))}
		for _, given := range [][]ratelimit.Result{room, room[:0]} {
			got := f.h.Store.Acquire(context.Background(), buckets, given)
			require.Len(f, got, 2)
			require.Same(f, &room[0], &got[0])
			require.NoError(f, got[0].Err)
			require.Equal(f, ratelimit.Admitted, got[1].Outcome)
			require.Zero(f, got[0].Wait+got[0].Reset)
			require.Zero(f, got[0].Uncharged)
			require.False(f, got[0].Tentative)
		}
		require.InDelta(f, 3, f.left(buckets[0]), 0.5)
		require.Len(f, f.h.Store.Acquire(context.Background(), buckets, room[:0:1]), 2, "a slice without room")
	}},
	{name: "a context that has ended changes nothing", run: func(f *fixture) {
		buckets := []ratelimit.Bucket{f.take("a", TB(5, 1)), f.take("b", SL(6, time.Hour)), shadow(f.take("c", TB(7, 1)))}
		f.all(buckets...)
		buckets = append(buckets, with(f.take("a", TB(5, 1)), ratelimit.Reset, 1), with(f.take("b", SL(6, time.Hour)), ratelimit.Refund, 1))
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		for _, r := range f.h.Store.Acquire(ctx, buckets, nil) {
			require.ErrorIs(f, r.Err, context.Canceled)
		}
		for i, want := range []float64{4, 5, 6} {
			require.InDelta(f, want, f.left(buckets[i]), 0.5)
		}
	}},
	{name: "a key that is changed after the call changes nothing", run: func(f *fixture) {
		b := f.take("a", TB(5, 1))
		f.admitted(b)
		again := f.take("a", TB(5, 1))
		clear(b.Key.Bytes())
		require.InDelta(f, 4, f.left(again), 0.5)
	}},
	{name: "keys that differ in one byte are different buckets", run: func(f *fixture) {
		for i := range 200 {
			require.Equal(f, 4.0, f.admitted(f.take(fmt.Sprintf("%0500d", i), TB(5, 1))).Remaining)
			require.Equal(f, 4.0, f.admitted(f.take(fmt.Sprintf("%0100d", i), TB(5, 1))).Remaining)
		}
	}},
	{name: "all or none", run: func(f *fixture) { allOrNone(f) }},
	{name: "TestField per-user TB{2} and site TB{1000}: a user sends 500, the site is charged 2", run: func(f *fixture) {
		for _, tags := range [][2]string{{"same", "same"}, {"user", "site"}} {
			if f.h.LosesUndos && tags[0] != tags[1] {
				continue
			}
			user, site := f.take("user", TB(2, 0.001)), f.take("site", TB(1000, 0.001))
			user.Key, site.Key = f.keyIn(tags[0], "user "+tags[0]), f.keyIn(tags[1], "site "+tags[1])
			for i := range 500 {
				r := f.all(user, site)
				require.Equal(f, i < 2, r[0].Outcome == ratelimit.Admitted)
				require.Equal(f, ratelimit.Admitted, r[1].Outcome)
			}
			require.InDelta(f, 998, f.left(site), 0.1)
		}
	}},
	{name: "TestField SL{10,1m} and SL{100,1h} on one key: 10 admitted in the first minute, the second charged 10", run: func(f *fixture) {
		minute, hour := f.take("minute", SL(10, time.Minute)), f.take("hour", SL(100, time.Hour))
		admitted := 0
		for range 30 {
			if f.all(minute, hour)[0].Outcome == ratelimit.Admitted {
				admitted++
			}
		}
		require.Equal(f, 10, admitted)
		require.Equal(f, 90.0, f.left(hour))
	}},
}

// allOrNone drains each of several buckets of mixed algorithms in turn and checks that no other one is charged.
func allOrNone(f *fixture) {
	names := []string{"tokens", "log", "more tokens", "more log"}
	for drained := range names {
		var buckets []ratelimit.Bucket
		for i, name := range names {
			l := TB(10, 0.001)
			if i%2 == 1 {
				l = SL(10, time.Hour)
			}
			buckets = append(buckets, f.take(fmt.Sprint(name, drained), l))
		}
		f.admitted(with(buckets[drained], ratelimit.Take, 9))
		for i, r := range f.all(buckets...) {
			require.Equal(f, ratelimit.Admitted, r.Outcome)
			require.Equal(f, i == drained, r.Remaining < 1)
		}
		for range 3 {
			for i, r := range f.all(buckets...) {
				require.Equal(f, i == drained, r.Outcome == ratelimit.Denied)
				require.Equal(f, i == drained, r.Wait > 0)
				if i != drained {
					require.InDelta(f, 9, r.Remaining, 0.1, "what is left without the call")
				}
			}
		}
	}
}
