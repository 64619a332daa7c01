package rejectcache_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// TestStoreCountsWholeMicroseconds: 9.5 us after a microsecond that was nearly over, the store sees ten.
func TestStoreCountsWholeMicroseconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, rejectcache.Options{}, 999*time.Nanosecond)
		b := take("a", storetest.TB(1, 6e6)) // one every 10 us
		f.drain(b)
		time.Sleep(9500 * time.Nanosecond)
		f.expect(b, ratelimit.FromStore, ratelimit.Admitted)
	})
}

// TestWaitForAnotherCostIsNotTooShort: from what is left the wait for another cost comes out a microsecond shorter than from the
// state that the store has.
func TestWaitForAnotherCostIsNotTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 564, Rate: 1.9715660740796235e-06}
		state := algorithm.Tokens{Level: 59, Clock: algorithm.Clock{Last: 5}}
		const now, cost = 2279788, 233
		wait := state.Wait(l, cost, now)
		left := state.Remaining(l, now)
		require.Less(t, algorithm.Tokens{Level: left}.Wait(l, cost, 0), wait, "no longer an example")

		f := newFixture(t, rejectcache.Options{})
		f.store.answer = func(r []ratelimit.Result) {
			r[0] = ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromStore, Remaining: left, Wait: time.Minute}
		}
		f.one(with("a", l, ratelimit.Take, cost+1))
		r := f.expect(with("a", l, ratelimit.Take, cost), ratelimit.FromCache, ratelimit.Denied)
		require.Equal(t, time.Duration(wait)*time.Microsecond, r.Wait)
	})
}
