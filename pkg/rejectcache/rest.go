package rejectcache

import (
	"context"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// rest is what reaches the store of a call that the cache denies: operations that are carried out whatever becomes of the others.
type rest struct {
	buckets []ratelimit.Bucket
	at      []int // where they stand in the call
	results []ratelimit.Result
}

// passOn has the store carry out what is not denied.
func (c *Cache) passOn(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) {
	first := 0
	for first < len(buckets) && buckets[first].Op.Deniable() {
		first++
	}
	if first == len(buckets) {
		return
	}
	rest := c.rests.Get().(*rest)
	defer c.recycle(rest)
	for i := first; i < len(buckets); i++ {
		if !buckets[i].Op.Deniable() {
			rest.buckets, rest.at = append(rest.buckets, buckets[i]), append(rest.at, i)
		}
	}
	rest.results = c.store.Acquire(ctx, rest.buckets, rest.results)
	for j, i := range rest.at {
		results[i] = rest.results[j]
		c.Forget(buckets[i].Key, 0)
	}
}

// recycle keeps the slices and lets go of what they point to.
func (c *Cache) recycle(r *rest) {
	clear(r.buckets)
	clear(r.results)
	r.buckets, r.at, r.results = r.buckets[:0], r.at[:0], r.results[:0]
	c.rests.Put(r)
}
