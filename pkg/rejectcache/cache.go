// Package rejectcache stands in front of a store and denies by itself what is known to be empty, so that a client that goes on
// calling after its denial costs the store next to nothing.
//
// It never denies what the store would admit, but for one case: when another instance gives something back to a bucket, this one
// may deny for up to Options.MaxAge more. A client that waits as long as it was told is admitted, if nobody else has called since
// the store was asked last.
//
// It learns from denials of the store, and only from those. An entry has what the bucket held as the store said, and
// when the call was sent and answered. A token bucket is denied while what it held, and has been refilled since the call was
// sent, is less than the cost; a sliding log is denied calls of the same cost for as long as the store said, counted from when
// the call was sent. The wait that is promised is counted from when the answer was there.
//
// A tentative denial ([ratelimit.Result]) is remembered for 20 ms only, and denies calls of the same cost only.
package rejectcache

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Options are what a Cache is made of.
type Options struct {
	// Store decides what the cache does not know. Required.
	Store ratelimit.Store
	// Entries is how many denials are remembered; default 65,536, which take 7 MB. It is rounded up to a power of two, at least 16. Where
	// there is no room, older ones are forgotten.
	Entries int
	// MaxAge is how long a denial is remembered at most. Default, and at most, 1 s.
	MaxAge time.Duration
}

const (
	defaultEntries = 65_536
	leastEntries   = 16
	longestAge     = time.Second
	// tentativeAge is how long a tentative denial is remembered: what it lacked may come back at any moment. If none were, a drained key whose
	// requests have buckets in several slots could be asked for all the time (ADR 0010).
	tentativeAge = 20 * time.Millisecond
)

// Cache is a ratelimit.Store that denies what it knows to be empty and asks another one about the rest. It is safe for
// concurrent use.
type Cache struct {
	ids    policy.Hasher
	store  ratelimit.Store
	began  time.Time
	maxAge int64
	mask   uint64
	sets   []set
	// newest is, for each set, when the call was sent that it learnt from last. Most have not of late, and are not looked at: these few
	// bytes stay in the processor's cache.
	newest []atomic.Int64
	rests  sync.Pool // of *rest
}

var _ ratelimit.Store = (*Cache)(nil)

// New makes an empty cache.
func New(o Options) *Cache {
	if o.Entries <= 0 {
		o.Entries = defaultEntries
	}
	if o.MaxAge <= 0 || o.MaxAge > longestAge {
		o.MaxAge = longestAge
	}
	sets := 1
	for sets*ways < max(o.Entries, leastEntries) {
		sets *= 2
	}
	c := &Cache{
		ids: policy.NewHasher(), store: o.Store, began: time.Now(), maxAge: int64(o.MaxAge),
		mask: uint64(sets - 1), sets: make([]set, sets), newest: make([]atomic.Int64, sets),
	}
	for i := range c.sets {
		c.sets[i].barrier = -1
		c.newest[i].Store(-int64(longestAge))
	}
	c.rests.New = func() any { return new(rest) }
	return c
}

func (c *Cache) now() int64 { return int64(time.Since(c.began)) }

func (c *Cache) setOf(id policy.Identity) *set { return &c.sets[id.A&c.mask] }

// Acquire implements ratelimit.Store. If an enforced Take or Peek is known to be denied, the results of those that are known have
// Source FromCache and what they wait for; the other Takes and Peeks have Source FromCache and no Outcome, since they are
// not asked. All other operations reach the store.
func (c *Cache) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if cap(results) < len(buckets) {
		results = make([]ratelimit.Result, len(buckets))
	}
	results = results[:len(buckets)]
	now := c.now()
	v := c.look(buckets, results, now)
	if v == denied {
		c.passOn(ctx, buckets, results)
		return results
	}
	results = c.store.Acquire(ctx, buckets, results)
	c.learn(buckets, results, now, v)
	return results
}

// look finds out what is known of a call. If it is denied, the results of its Takes and Peeks are filled in.
func (c *Cache) look(buckets []ratelimit.Bucket, results []ratelimit.Result, now int64) verdict {
	all := unknown
	for i := range buckets {
		b := &buckets[i]
		if b.Shadow || !b.Op.Deniable() {
			continue
		}
		switch v := c.find(b, now, &results[i]); {
		case v == denied && all != denied:
			all = denied
			withhold(buckets, results, i)
		case v == denied:
		case all == denied:
			results[i] = unasked
		default:
			all = max(all, v)
		}
	}
	return all
}

// find says what is known of a bucket.
func (c *Cache) find(b *ratelimit.Bucket, now int64, r *ratelimit.Result) verdict {
	id := c.ids.Identify(b.Key.Bytes())
	if now-c.newest[id.A&c.mask].Load() >= c.maxAge {
		return unknown
	}
	return c.setOf(id).find(id, b, now, c.maxAge, r)
}

// unasked is the result of a bucket that another one's denial spares the question.
var unasked = ratelimit.Result{Source: ratelimit.FromCache}

// withhold marks as unasked what stands before the first bucket that is known to be denied, and all shadow buckets.
func withhold(buckets []ratelimit.Bucket, results []ratelimit.Result, first int) {
	for i := range buckets {
		if i < first || buckets[i].Shadow {
			results[i] = unasked
		}
	}
}

// learn takes in what the store said to a call that was sent at sent. A bucket that was known and has not denied may have been
// charged: what others would be promised is not true any more.
func (c *Cache) learn(buckets []ratelimit.Bucket, results []ratelimit.Result, sent int64, v verdict) {
	var received int64
	for i := range buckets {
		b, r := &buckets[i], &results[i]
		switch {
		case !b.Op.Deniable():
			c.Forget(b.Key, 0)
		case b.Shadow:
		case r.Outcome == ratelimit.Denied:
			if received == 0 {
				received = c.now()
			}
			id := c.ids.Identify(b.Key.Bytes())
			if e, ok := denial(id, b, r, sent, received); ok {
				c.setOf(id).learn(e, b, c.maxAge, &c.newest[id.A&c.mask])
			}
		case v == known:
			id := c.ids.Identify(b.Key.Bytes())
			c.setOf(id).drop(id)
		}
	}
}

// Learn takes in what the store said to a call for which nobody waited any more. sent is when it was sent, or earlier.
func (c *Cache) Learn(buckets []ratelimit.Bucket, results []ratelimit.Result, sent time.Time) {
	c.learn(buckets, results, int64(sent.Sub(c.began)), known)
}

// Forget drops what is known of a bucket, since something is given back to it that did not come through Acquire. The answers of calls that
// are under way are not learnt, and for settle no others either: that is how long the giving back may take from now.
func (c *Cache) Forget(key policy.Key, settle time.Duration) {
	id := c.ids.Identify(key.Bytes())
	c.setOf(id).forget(id, c.now()+int64(settle))
}

// Stats are counts since New.
type Stats struct {
	Denials uint64 // by the cache, one for each bucket
	Learnt  uint64 // denials of the store that were noted
}

// Stats locks one part of the table after the other.
func (c *Cache) Stats() Stats {
	var t Stats
	for i := range c.sets {
		s := &c.sets[i]
		s.mu.Lock()
		t.Denials += s.denials
		t.Learnt += s.learnt
		s.mu.Unlock()
	}
	return t
}
