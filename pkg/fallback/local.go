package fallback

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// local decides buckets by this instance's share of their limits while the store cannot.
//
// A bucket starts with this instance's part of what the store last said that it has left. Once it has denied or admitted anything it is kept,
// refilling, until it is full: an outage soon after the last one goes on where that ended. What it admits is owed to the store (debt.go).
type local struct {
	store     ratelimit.Store // keeps the local buckets, which never have more than a share of a limit; nil: none, all is admitted
	instances func() Instances
	began     time.Time
	ids       policy.Hasher
	seen      *seen
	debts     debts
	payer     payer
	classify  func(error) Fault
	charge    acquire                    // asks the store in the background
	condition func(key []byte) condition // what is known of a bucket's store
	calls     sync.Pool                  // of *localCall
}

// localCall is one decision under way.
type localCall struct {
	at      []int // the call's buckets that are decided here …
	ids     []policy.Identity
	buckets []ratelimit.Bucket // … as the local store is asked about them
	results []ratelimit.Result
	starts  []ratelimit.Bucket // those that start anew, and what they start without
	scratch []ratelimit.Result
}

func newLocal(o *Options) *local {
	l := &local{
		store: o.Local, instances: o.Instances, began: time.Now(), ids: policy.NewHasher(), classify: o.Classify,
		debts: debts{most: o.MaxDebts},
	}
	if l.store == nil {
		return l
	}
	l.seen = newSeen(o.Seen)
	l.calls.New = func() any { return new(localCall) }
	return l
}

// now is the time in nanoseconds since the day before the start: never 0.
func (l *local) now() int64 { return l.clock(time.Now()) }

// clock is what now was at a time.
func (l *local) clock(t time.Time) int64 { return int64(t.Sub(l.began) + 24*time.Hour) }

// leastWait is the shortest wait for a store that fails.
const leastWait = time.Second

// decide answers the buckets at those indices, all or none; their results carry why the store has not. denied says that the request is
// denied by others, so that nothing may be charged. wait is how long it is until the store is asked again, as far as known: for that waits
// what no share can ever admit.
func (l *local) decide(buckets []ratelimit.Bucket, results []ratelimit.Result, at []int, denied bool, wait time.Duration) {
	if l.store == nil {
		for _, i := range at {
			results[i] = letThrough
		}
		return
	}
	c := l.calls.Get().(*localCall)
	defer l.recycle(c)
	n := l.instances()
	for _, i := range at {
		b := &buckets[i]
		share := n.Share(b.Limits, b.Key.Bytes())
		switch {
		case b.Op == ratelimit.Undo: // of a take that the store knows of
			results[i] = letThrough
			continue
		case b.Op.Deniable() && float64(b.Cost) > share.Capacity:
			denied = denied || !b.Shadow
		}
		c.add(i, l.ids.Identify(b.Key.Bytes()), b, share)
	}
	locks := l.debts.lock(c.ids)
	defer l.debts.unlock(locks)
	now := l.now()
	l.startBuckets(c, buckets, now)
	l.take(c, buckets, results, denied, now)
	for j, i := range c.at {
		if c.above(j, &buckets[i]) {
			results[i].Outcome, results[i].Wait = ratelimit.Denied, max(wait, leastWait)
		}
	}
}

// above reports whether the call asks for more than the share can ever have.
func (c *localCall) above(j int, b *ratelimit.Bucket) bool {
	return b.Op.Deniable() && float64(b.Cost) > c.buckets[j].Limits.Capacity
}

// letThrough is the result of what is neither counted nor denied.
var letThrough = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromOpen}

// add takes a bucket into the call, with its share for a limit.
func (c *localCall) add(i int, id policy.Identity, b *ratelimit.Bucket, share algorithm.Limits) {
	mine := *b
	mine.Limits = share
	if b.Limits.Capacity > 0 {
		mine.Overdraft = math.Floor(b.Overdraft * share.Capacity / b.Limits.Capacity)
	}
	if b.Op == ratelimit.Put && b.Limits.Capacity > 0 {
		mine.Cost = max(1, uint64(min(float64(b.Cost), b.Limits.Capacity)*share.Capacity/b.Limits.Capacity))
	}
	if b.Op.Deniable() && float64(b.Cost) > share.Capacity { // only looked at
		mine.Op, mine.Cost, mine.Shadow = ratelimit.Peek, 1, true
	}
	c.at, c.ids, c.buckets = append(c.at, i), append(c.ids, id), append(c.buckets, mine)
}

// startBuckets gives those that are full or unknown what was last seen of them.
func (l *local) startBuckets(c *localCall, buckets []ratelimit.Bucket, now int64) {
	c.starts = c.starts[:0]
	for j := range c.buckets {
		look := c.buckets[j]
		look.Op, look.Cost, look.Shadow = ratelimit.Peek, 1, true
		c.starts = append(c.starts, look)
	}
	c.scratch = l.ask(c.starts, c.scratch)
	c.starts = c.starts[:0]
	for j := range c.buckets {
		mine, whole := &c.buckets[j], &buckets[c.at[j]].Limits
		share := mine.Limits.Capacity
		if share == 0 || c.scratch[j].Remaining < share {
			continue
		}
		start := min(share, math.Floor(l.seen.remaining(c.ids[j], whole, now)*share/whole.Capacity))
		if missing := share - start; missing > 0 {
			less := *mine
			less.Op, less.Cost, less.Overdraft, less.Shadow = ratelimit.Force, uint64(missing), max(0, -start), false
			c.starts = append(c.starts, less)
		}
	}
	if len(c.starts) > 0 {
		c.scratch = l.ask(c.starts, c.scratch)
	}
}

// take has the local store decide, and notes what is owed for it.
func (l *local) take(c *localCall, buckets []ratelimit.Bucket, results []ratelimit.Result, denied bool, now int64) {
	for j := range c.buckets {
		if denied && c.buckets[j].Op == ratelimit.Take {
			c.buckets[j].Op = ratelimit.Peek
		}
	}
	c.results = l.ask(c.buckets, c.results)
	for j, i := range c.at {
		r := &c.results[j]
		if r.Err != nil { // not from a store in memory
			*r = letThrough
			results[i] = *r
			continue
		}
		r.Source, r.At, r.Before = ratelimit.FromLocal, 0, 0
		results[i] = *r
		denied = denied || r.Outcome == ratelimit.Denied && enforced(&c.buckets[j])
	}
	for j, i := range c.at {
		l.account(c, j, &buckets[i], denied, now)
	}
}

// account notes what the store is to be charged for one bucket.
func (l *local) account(c *localCall, j int, b *ratelimit.Bucket, denied bool, now int64) {
	mine, r := &c.buckets[j], &c.results[j]
	switch mine.Op {
	case ratelimit.Take:
		if denied || r.Outcome != ratelimit.Admitted {
			return
		}
		l.owe(c.ids[j], b, mine, r.Remaining, now)
	case ratelimit.Force:
		l.owe(c.ids[j], b, mine, r.Remaining, now)
	case ratelimit.Refund:
		l.debts.refundLocked(c.ids[j], b.Cost, r.Remaining, now)
	case ratelimit.Reset, ratelimit.Put:
		l.seen.forget(c.ids[j])
		l.debts.forgiveLocked(c.ids[j])
	default:
	}
}

func (l *local) owe(id policy.Identity, b, mine *ratelimit.Bucket, level float64, now int64) {
	if l.debts.addLocked(id, b, mine, level, now) {
		l.wake()
	}
}

// ask calls the local store, which no deadline concerns: the caller's may be over by the time that the store has failed.
func (l *local) ask(buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	return l.store.Acquire(context.Background(), buckets, results)
}

// recycle keeps the slices and lets go of the keys.
func (l *local) recycle(c *localCall) {
	clear(c.buckets)
	clear(c.starts[:cap(c.starts)])
	c.at, c.ids, c.buckets = c.at[:0], c.ids[:0], c.buckets[:0]
	l.calls.Put(c)
}
