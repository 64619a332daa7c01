package memorybackend

import (
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// write charges what the call has taken from a bucket.
func (c *call) write(i int) {
	b, cl := &c.buckets[i], &c.claims[i]
	s := cl.at()
	if s == nil {
		if s = c.insert(cl, b); s == nil {
			return
		}
	}
	c.save(cl, s, b)
	if cl.renewed { // no bucket is added, but the lapsed ones have to go all the same
		cl.shard.tidyLocked(sweepPerRenewal, cl.now)
	}
}

// insert makes a slot for the bucket, or counts what is lost for want of one and returns nil.
func (c *call) insert(cl *claim, b *ratelimit.Bucket) *slot {
	spent := float64(cl.adds)
	if b.Limits.Kind == algorithm.TokenBucket {
		spent = b.Limits.Capacity - cl.tokens.Level
	}
	n := slot{id: cl.id, last: cl.now, closed: closed(b)}
	n.setLimits(&b.Limits)
	if cl.slot = int32(cl.shard.insertLocked(&n, spent/b.Limits.Capacity, cl.now)); cl.slot < 0 {
		cl.shard.evicted++
		cl.shard.evictedTokens += spent
		return nil
	}
	return &cl.shard.slots[cl.slot]
}

func (c *call) save(cl *claim, s *slot, b *ratelimit.Bucket) {
	if cl.shard == &c.store.shards[len(c.store.shards)-1] {
		cl.shard.overflows++
	}
	cl.shard.setClosedLocked(s, closed(b))
	s.setLimits(&b.Limits)
	s.last = cl.now
	if b.Limits.Kind == algorithm.SlidingLog {
		cl.shard.addLocked(&cl.shard.logs[s.log], &b.Limits, cl.adds, cl.now)
		return
	}
	s.level = cl.tokens.Level
}

// change carries out an operation that is never denied.
func (c *call) change(i int) {
	b, r, cl := &c.buckets[i], &c.results[i], &c.claims[i]
	r.Outcome, r.At = ratelimit.Admitted, cl.now
	if b.Op == ratelimit.Force {
		c.force(i)
		return
	}
	cl.find()
	s := cl.at()
	anew := b.Op == ratelimit.Reset || b.Op == ratelimit.Put
	if s != nil && (anew || s.lapsed(cl.now)) {
		cl.shard.dropLocked(int(cl.slot))
		s = nil
	}
	switch {
	case b.Op == ratelimit.Put:
		c.put(i)
		return
	case s == nil:
		r.Remaining = b.Limits.Capacity
		return
	}
	cl.shard.adoptLocked(s, &b.Limits, cl.now)
	if b.Limits.Kind == algorithm.SlidingLog {
		g := cl.entries()
		giveBackEntries(g, b, cl.now)
		describeLog(g, b, r, 0, cl.now)
		return
	}
	t := giveBackTokens(s.tokens(), b, cl.now)
	s.level, s.last = t.Level, t.Last
	r.Remaining = t.Level
}

func giveBackTokens(t algorithm.Tokens, b *ratelimit.Bucket, now int64) algorithm.Tokens {
	if b.Op == ratelimit.Undo {
		return t.Undo(b.Limits, b.Cost, b.Before, b.At, now)
	}
	return t.Refund(b.Limits, b.Cost, now)
}

func giveBackEntries(g *algorithm.Log, b *ratelimit.Bucket, now int64) {
	if b.Op == ratelimit.Undo {
		g.Undo(b.Limits, b.Cost, b.At, now)
		return
	}
	g.Refund(b.Limits, b.Cost, now)
}

// put charges a bucket that was just forgotten.
func (c *call) put(i int) {
	b := &c.buckets[i]
	overdraft := b.Overdraft
	b.Overdraft = 0
	c.force(i)
	b.Overdraft = overdraft
}

// force charges what there is, or goes into debt.
func (c *call) force(i int) {
	b, r, cl := &c.buckets[i], &c.results[i], &c.claims[i]
	c.seek(i)
	if b.Limits.Kind == algorithm.SlidingLog {
		g := cl.entries()
		cl.adds = min(b.Cost, g.Remaining(b.Limits, cl.now))
		r.Uncharged = b.Cost - cl.adds
		describeLog(g, b, r, cl.adds, cl.now)
	} else {
		cl.tokens, r.Uncharged = cl.tokens.Force(b.Limits, b.Cost, b.Overdraft, cl.now)
		r.Remaining = cl.tokens.Remaining(b.Limits, cl.now)
	}
	if r.Uncharged < b.Cost {
		c.write(i)
	}
	cl.first = -1
}
