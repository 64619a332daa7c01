package memorybackend

import (
	"errors"
	"math"
	"math/bits"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

var errTwoKinds = errors.New("one bucket under two algorithms in one call")

// call is one Acquire under way.
type call struct {
	store   *Store
	buckets []ratelimit.Bucket
	results []ratelimit.Result
	claims  []claim // one for each bucket
	locked  [maxShards/64 + 1]uint64
}

// claim is what a call has found out about one of its buckets.
type claim struct {
	shard *shard
	id    policy.Identity
	now   int64 // by the shard's clock
	slot  int32 // where the bucket was seen last, or -1
	first int32 // the first claim of this call on the same bucket: its own index, since keys are distinct as a rule

	// What the bucket becomes if the call is admitted, kept by the first claim on it.
	tokens  algorithm.Tokens // a token bucket
	adds    uint64           // entries to add to a log
	dirty   bool             // something was taken
	renewed bool             // the bucket was there, but lapsed
}

func (c *call) identify() {
	for i := range c.buckets {
		c.claims[i].id = c.store.ids.Identify(c.buckets[i].Key.Bytes())
		n := c.claims[i].id.A >> c.store.shift
		c.claims[i].shard = &c.store.shards[n]
		c.locked[n/64] |= 1 << (n % 64)
	}
}

// lock takes the locks in the order of the shards, and then sets their clocks.
func (c *call) lock() {
	for word := range c.locked { // not a second variable: that would copy the array
		for set := c.locked[word]; set != 0; set &= set - 1 {
			c.store.shards[word*64+bits.TrailingZeros64(set)].mu.Lock()
		}
	}
	now := c.store.now()
	for i := range c.buckets {
		cl := &c.claims[i]
		cl.shard.clock = cl.shard.clock.At(now)
		cl.now = cl.shard.clock.Last
	}
}

func (c *call) unlock() {
	for word := range c.locked {
		for set := c.locked[word]; set != 0; set &= set - 1 {
			c.store.shards[word*64+bits.TrailingZeros64(set)].mu.Unlock()
		}
	}
}

// decide fills the results. First come the operations that are carried out whatever becomes of the rest.
func (c *call) decide() {
	for i := range c.buckets {
		c.results[i] = ratelimit.Result{Source: ratelimit.FromStore}
		c.claims[i].first = -1
		if !takes(c.buckets[i].Op) {
			c.change(i)
		}
	}
	admitted := true
	for i := range c.buckets {
		if b := &c.buckets[i]; takes(b.Op) && !b.Shadow {
			c.try(i)
			admitted = admitted && c.results[i].Outcome != ratelimit.Denied
		}
	}
	for i := range c.buckets {
		if b := &c.buckets[i]; takes(b.Op) && !b.Shadow {
			c.settle(i, admitted)
		}
	}
	for i := range c.buckets {
		if b := &c.buckets[i]; takes(b.Op) && b.Shadow {
			c.try(i)
			c.settle(i, admitted)
		}
	}
}

func closed(b *ratelimit.Bucket) bool { return b.OnFailure == policy.Closed }

func takes(op ratelimit.Op) bool { return op == ratelimit.Take || op == ratelimit.Peek }

// settle writes what the bucket has become, or reports what it still is.
func (c *call) settle(i int, admitted bool) {
	cl, b, r := &c.claims[i], &c.buckets[i], &c.results[i]
	if b.Shadow && !(admitted && b.Op == ratelimit.Take && r.Outcome == ratelimit.Admitted) {
		r.At = 0 // only looked at
	}
	switch {
	case r.Err != nil || r.Source == ratelimit.FromNever:
	case !admitted:
		c.report(i)
	case int(cl.first) == i && cl.dirty:
		c.write(i)
	}
	cl.first = -1 // later ones look at what is written
}

// try decides a Take or Peek on top of what the call's earlier ones have taken.
func (c *call) try(i int) {
	b, r := &c.buckets[i], &c.results[i]
	if float64(b.Cost) > b.Limits.Capacity {
		r.Outcome, r.Source = ratelimit.Denied, ratelimit.FromNever
		return
	}
	c.seek(i)
	cl := &c.claims[i]
	first := &c.claims[cl.first]
	if c.buckets[cl.first].Limits.Kind != b.Limits.Kind {
		r.Err = errTwoKinds
		return
	}
	r.At = cl.now
	if b.Limits.Kind == algorithm.SlidingLog {
		tryLog(first, b, r)
		return
	}
	tryTokens(first, b, r)
}

func tryTokens(first *claim, b *ratelimit.Bucket, r *ratelimit.Result) {
	have := first.tokens.Remaining(b.Limits, first.now)
	r.Before, r.Remaining = have, have
	if have < float64(b.Cost) {
		r.Outcome = ratelimit.Denied
		r.Wait = duration(first.tokens.Wait(b.Limits, b.Cost, first.now))
		return
	}
	r.Outcome = ratelimit.Admitted
	if b.Op == ratelimit.Take {
		first.tokens, _ = first.tokens.Take(b.Limits, b.Cost, first.now)
		first.dirty = true
		r.Remaining = first.tokens.Level
	}
}

func tryLog(first *claim, b *ratelimit.Bucket, r *ratelimit.Result) {
	g := first.entries()
	wanted := first.adds + b.Cost
	wait := g.Wait(b.Limits, wanted, first.now)
	r.Outcome = ratelimit.Admitted
	switch {
	case wait == algorithm.Never: // only together with what the same call has taken already
		r.Outcome, wait = ratelimit.Denied, b.Limits.Window
	case wait > 0:
		r.Outcome = ratelimit.Denied
	case b.Op == ratelimit.Take:
		first.adds, first.dirty = wanted, true
	}
	r.Wait = duration(wait)
	describeLog(g, b, r, first.adds, first.now)
}

// describeLog fills in what is left of a log to which adds entries are added now.
func describeLog(g *algorithm.Log, b *ratelimit.Bucket, r *ratelimit.Result, adds uint64, now int64) {
	left := g.Remaining(b.Limits, now)
	r.Remaining = float64(left - min(left, adds))
	reset := g.Reset(b.Limits, now)
	if reset == 0 && adds > 0 {
		reset = b.Limits.Window
	}
	r.Reset = duration(reset)
}

// report replaces what a bucket would have left by what it has, since the call was denied.
func (c *call) report(i int) {
	b, r, cl := &c.buckets[i], &c.results[i], &c.claims[i]
	if b.Limits.Kind == algorithm.SlidingLog {
		describeLog(cl.entries(), b, r, 0, cl.now)
		return
	}
	r.Remaining = cl.load(b).Remaining(b.Limits, cl.now)
}

// duration of microseconds, as long as one can be.
func duration(us int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(us, most)) * time.Microsecond
}
