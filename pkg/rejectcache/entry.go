package rejectcache

import (
	"math"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// entry is a denial by the store, and so what its bucket held at some time between sent and received, both in nanoseconds
// since the cache was made. It denies by the time of sending and promises by the time of receipt.
type entry struct {
	id     policy.Identity
	limits algorithm.Limits // zero: the entry is free
	sent   int64
	// received is when the answer was there.
	received int64
	// remaining is the store's Result.Remaining: tokens, or entries that fitted into the log.
	remaining float64
	// cost, wait and reset are those of the call that was denied.
	cost        uint64
	wait, reset int64
	tentative   bool
}

// slack is added to the time that has passed. The store counts in whole microseconds, so that it can see one more of them pass
// than there was time for.
const slack = 2 * time.Microsecond

// same reports whether the entry is what a denial of b would replace. A log has an entry for each cost: what is known of
// one tells nothing exact about another.
func (e *entry) same(id policy.Identity, b *ratelimit.Bucket) bool {
	return e.id == id && e.limits.Kind != 0 && (e.limits.Kind == algorithm.TokenBucket || e.cost == b.Cost)
}

// lasts is for how many nanoseconds after sent the entry denies at most.
func (e *entry) lasts(maxAge int64) int64 {
	if e.tentative {
		return min(maxAge, int64(tentativeAge))
	}
	return maxAge
}

// denies reports whether the store would certainly deny b at now, if nobody has given anything back since.
func (e *entry) denies(b *ratelimit.Bucket, now int64) bool {
	passed := now - e.sent + int64(slack)
	switch {
	case e.tentative && b.Cost != e.cost: // what others are promised is not known
		return false
	case b.Limits.Kind != algorithm.TokenBucket:
		return passed < e.wait
	}
	need := float64(b.Cost)
	rounding := 1e-15 * (need + math.Abs(e.remaining)) // the store's sums are others, and so is how they round
	return need <= b.Limits.Capacity && e.tokensAfter(passed) < need-rounding
}

// tokensAfter is what a token bucket holds so many nanoseconds after it held remaining.
func (e *entry) tokensAfter(passed int64) float64 {
	return e.remaining + float64(passed)/1e3*e.limits.Rate
}

// describe fills in the denial of b at now.
func (e *entry) describe(b *ratelimit.Bucket, now int64, r *ratelimit.Result) {
	ago := now - e.received
	wait := max(e.waitFor(b)-ago, int64(time.Microsecond))
	*r = ratelimit.Result{
		Outcome: ratelimit.Denied, Source: ratelimit.FromCache, Remaining: e.remaining, Wait: time.Duration(wait), Tentative: e.tentative,
	}
	if b.Limits.Kind == algorithm.TokenBucket {
		r.Remaining = e.tokensAfter(max(ago, 0))
		return
	}
	if r.Reset = time.Duration(e.reset - ago); r.Reset <= 0 { // the oldest has left, and the next leaves no later than this
		r.Reset = r.Wait
	}
}

// waitFor is how many nanoseconds after receipt a call like b is admitted.
func (e *entry) waitFor(b *ratelimit.Bucket) int64 {
	if b.Cost == e.cost {
		return e.wait
	}
	us := algorithm.Tokens{Level: e.remaining}.Wait(e.limits, b.Cost, 0) + 1 // the store's sums may round the other way
	return min(us, math.MaxInt64/2000) * 1000
}
