package rejectcache_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
)

// TestNeverDeniesWhatTheStoreAdmits compares every denial of the cache with what the store says at the same time, over random
// calls, costs, latencies and changes of limits, with another instance that takes and gives back behind the cache.
func TestNeverDeniesWhatTheStoreAdmits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Only what testing.TB has: in a bubble there is no asking for the deadline of the test.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) { newWalk(t, rt).run() })
	})
}

// walk is one random sequence of calls.
type walk struct {
	*rapid.T
	f        *fixture
	buckets  []ratelimit.Bucket
	returned []time.Time // when the other instance gave something back to each …
	charged  []time.Time // … or charged it
}

func newWalk(t *testing.T, rt *rapid.T) *walk {
	w := &walk{T: rt, f: newFixture(t, rejectcache.Options{Entries: 16}, time.Duration(rapid.IntRange(0, 999).Draw(rt, "phase")))}
	for i := range rapid.IntRange(1, 4).Draw(rt, "buckets") {
		w.buckets = append(w.buckets, with(fmt.Sprint(i), w.limits(), ratelimit.Take, 1))
	}
	w.returned, w.charged = make([]time.Time, len(w.buckets)), make([]time.Time, len(w.buckets))
	return w
}

func (w *walk) limits() algorithm.Limits {
	capacity := float64(rapid.IntRange(1, 8).Draw(w.T, "capacity"))
	if rapid.Bool().Draw(w.T, "log") {
		return algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: capacity, Window: rapid.Int64Range(1, 3e6).Draw(w.T, "window")}
	}
	return algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: capacity, Rate: algorithm.RatePer(time.Minute, rapid.Float64Range(1, 1e4).Draw(w.T, "per minute"))}
}

func (w *walk) run() {
	for range rapid.IntRange(1, 80).Draw(w.T, "steps") {
		i := rapid.IntRange(0, len(w.buckets)-1).Draw(w.T, "bucket")
		b := w.buckets[i]
		b.Cost = rapid.Uint64Range(1, uint64(b.Limits.Capacity)).Draw(w.T, "cost")
		latency := rapid.SampledFrom([]time.Duration{0, 0, time.Nanosecond, 300 * time.Microsecond, 20 * time.Millisecond})
		w.f.store.there, w.f.store.back = latency.Draw(w.T, "there"), latency.Draw(w.T, "back")
		switch rapid.IntRange(0, 19).Draw(w.T, "step") {
		case 0:
			b.Op = ratelimit.Refund
			w.f.one(b)
		case 1:
			b.Op = ratelimit.Refund
			w.behind(b)
			w.returned[i] = time.Now()
		case 2:
			b.Op = ratelimit.Force
			w.behind(b)
			w.charged[i] = time.Now()
		case 3:
			w.buckets[i].Limits = w.limits()
			w.returned[i] = time.Now() // as good as given back: the store may forget a bucket that is full under the old limits
		case 4, 5, 6:
			time.Sleep(time.Duration(rapid.Int64Range(1, 2e9).Draw(w.T, "ns")))
		default:
			w.call(i, b)
		}
	}
}

// behind is a call by another instance.
func (w *walk) behind(b ratelimit.Bucket) ratelimit.Result {
	return w.f.store.Store.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)[0]
}

func (w *walk) call(i int, b ratelimit.Bucket) {
	r := w.f.one(b)
	if r.Source != ratelimit.FromCache {
		return
	}
	peek := b
	peek.Op = ratelimit.Peek
	want := w.behind(peek)
	if want.Outcome == ratelimit.Admitted {
		require.True(w, lately(w.returned[i]), "%+v: denied by the cache: %+v, but not by the store: %+v", b, r, want)
		return
	}
	require.Positive(w, r.Wait)
	require.GreaterOrEqual(w, r.Remaining, -1.0)
	require.Less(w, r.Remaining, float64(b.Cost))
	if !lately(w.charged[i]) && rapid.Bool().Draw(w.T, "wait it out") {
		time.Sleep(r.Wait)
		require.Equal(w, ratelimit.Admitted, w.f.one(b).Outcome, "%+v: promised %+v, store %+v", b, r, want)
	}
}

// lately reports whether the cache may not know of what happened then.
func lately(t time.Time) bool { return !t.IsZero() && time.Since(t) < time.Second }
