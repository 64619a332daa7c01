package memorybackend

import (
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// seek finds the bucket of a claim and brings it under the limits in force. What it changes is no change of what the bucket
// says: a lapsed bucket is forgotten, one of another algorithm is carried over, and a longer life is noted.
func (c *call) seek(i int) {
	b, cl := &c.buckets[i], &c.claims[i]
	cl.find()
	if cl.slot < 0 && closed(b) && cl.shard.closedFullLocked(cl.now) {
		c.share(cl, b)
	}
	if cl.first = c.firstOn(i); int(cl.first) != i {
		return
	}
	if cl.slot >= 0 {
		n := &cl.shard.slots[cl.slot]
		n.heat = maxHeat
		cl.renewed = n.lapsed(cl.now)
		cl.shard.adoptLocked(n, &b.Limits, cl.now)
	}
	cl.tokens, cl.adds, cl.dirty = cl.load(b), 0, false
}

func (cl *claim) find() { cl.slot = int32(cl.shard.find(cl.id)) }

// firstOn is the first claim on the bucket of claim i among those that were sought before.
func (c *call) firstOn(i int) int32 {
	for j := range c.claims[:len(c.buckets)] {
		o := &c.claims[j]
		if int(o.first) == j && o.id == c.claims[i].id && o.shard == c.claims[i].shard {
			return int32(j)
		}
	}
	return int32(i)
}

// share turns a claim on a closed bucket that finds no room to the bucket that all such with equal limits share. Its
// shard is the last one, so that locking it now keeps to the order.
func (c *call) share(cl *claim, b *ratelimit.Bucket) {
	n := len(c.store.shards) - 1
	shared := &c.store.shards[n]
	if held := uint64(1) << (n % 64); c.locked[n/64]&held == 0 {
		c.locked[n/64] |= held
		shared.mu.Lock()
	}
	shared.clock = shared.clock.At(cl.now)
	cl.shard, cl.now = shared, shared.clock.Last
	cl.id = c.store.identifyLimits(b.Limits)
	cl.find()
}

// at returns the slot of a claim, which others may have moved meanwhile, or nil.
func (cl *claim) at() *slot {
	if i := int(cl.slot); i >= 0 && i < len(cl.shard.slots) {
		if s := &cl.shard.slots[i]; s.id == cl.id && s.kind != 0 {
			return s
		}
	}
	if cl.find(); cl.slot < 0 {
		return nil
	}
	return &cl.shard.slots[cl.slot]
}

// load is the state of a token bucket. A bucket that is not held is full.
func (cl *claim) load(b *ratelimit.Bucket) algorithm.Tokens {
	if s := cl.at(); s != nil {
		return s.tokens()
	}
	return algorithm.NewTokens(b.Limits, cl.now)
}

// entries are those of a log. They are valid until a bucket is added.
func (cl *claim) entries() *algorithm.Log {
	if s := cl.at(); s != nil {
		return &cl.shard.logs[s.log]
	}
	return &cl.shard.none
}

// closedFullLocked reports whether there is no room for another closed bucket.
func (s *shard) closedFullLocked(now int64) bool {
	if s.closed >= s.mostClosed {
		s.sweepLocked(sweepForClosed, now)
	}
	return s.closed >= s.mostClosed
}

// adoptLocked carries a bucket over to other limits, if they are other ones.
func (s *shard) adoptLocked(n *slot, l *algorithm.Limits, now int64) {
	switch {
	case n.lapsed(now):
		s.renewLocked(n, l, now)
	case n.kind == l.Kind && n.capacity == l.Capacity && n.pace == pace(l):
	case n.kind != l.Kind:
		s.switchLocked(n, l, now)
	case l.Kind == algorithm.SlidingLog:
		if float64(l.Window) > n.pace {
			n.setLimits(l)
		}
	case n.tokens().FullIn(*l, now) > n.tokens().FullIn(n.limits(), now):
		n.setLimits(l)
	}
}

// renewLocked makes a lapsed bucket a full one. It stays lapsed until something is charged.
func (s *shard) renewLocked(n *slot, l *algorithm.Limits, now int64) {
	if n.kind != l.Kind {
		s.switchLocked(n, l, now)
	}
	n.setLimits(l)
	if n.kind == algorithm.SlidingLog {
		s.logs[n.log].Clear()
		n.last = now - l.Window
		return
	}
	n.level, n.last = l.Capacity, now
}

// switchLocked carries a bucket over to another algorithm.
func (s *shard) switchLocked(n *slot, l *algorithm.Limits, now int64) {
	old := n.limits()
	if l.Kind == algorithm.SlidingLog {
		entries := n.tokens().EntriesFor(*l, old, now)
		n.log = s.newLogLocked()
		s.addLocked(&s.logs[n.log], l, entries, now)
	} else {
		n.level = s.logs[n.log].TokensFor(*l, old, now).Level
		s.freeLogLocked(n.log)
	}
	n.last = now
	n.setLimits(l)
}
