package blocklist

import (
	"context"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// trip is what reaches the store of a call that has blocked buckets.
type trip struct {
	buckets []ratelimit.Bucket
	at      []int // where they stand in the call
	results []ratelimit.Result
}

// unasked is the result of a bucket that another one's denial spares the question.
var unasked = ratelimit.Result{Source: ratelimit.FromBlocked}

// Acquire implements [ratelimit.Store]. A Take or Peek of a blocked bucket is denied with Source FromBlocked, and waits until the block
// ends. If that is an enforced one, the other Takes and Peeks have Source FromBlocked and no Outcome, since they are not asked. All other
// operations reach the store.
func (s *Store) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	t := s.table.Load()
	if t == nil {
		return s.store.Acquire(ctx, buckets, results)
	}
	now := time.Now()
	if !now.Before(t.last) {
		s.table.CompareAndSwap(t, nil) // what is over sooner stays: it denies nothing, and a decision does not wait for a new table
		return s.store.Acquire(ctx, buckets, results)
	}
	blocked, denied := t.look(buckets, now)
	if !blocked {
		return s.store.Acquire(ctx, buckets, results)
	}
	if cap(results) < len(buckets) {
		results = make([]ratelimit.Result, len(buckets))
	}
	results = results[:len(buckets)]
	trip := s.trips.Get().(*trip)
	defer s.recycle(trip)
	trip.split(t, now, denied, buckets, results)
	if len(trip.buckets) > 0 {
		trip.results = s.store.Acquire(ctx, trip.buckets, trip.results)
		for j, i := range trip.at {
			results[i] = trip.results[j]
		}
	}
	return results
}

// look reports whether a Take or Peek is of a blocked bucket, and whether an enforced one is.
func (t *table) look(buckets []ratelimit.Bucket, now time.Time) (blocked, denied bool) {
	for i := range buckets {
		if b := &buckets[i]; b.Op.Deniable() && t.left(b.Key.Bytes(), now) > 0 {
			blocked, denied = true, denied || !b.Shadow
		}
	}
	return blocked, denied
}

// split answers what is blocked, and what is not to be asked if the call is denied. The rest is for the store.
func (trip *trip) split(t *table, now time.Time, denied bool, buckets []ratelimit.Bucket, results []ratelimit.Result) {
	for i := range buckets {
		b := &buckets[i]
		switch left := t.left(b.Key.Bytes(), now); {
		case b.Op.Deniable() && left > 0:
			results[i] = ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromBlocked, Wait: left}
		case b.Op.Deniable() && denied:
			results[i] = unasked
		default:
			trip.buckets, trip.at = append(trip.buckets, *b), append(trip.at, i)
		}
	}
}

// recycle keeps the slices and lets go of what they point to.
func (s *Store) recycle(t *trip) {
	clear(t.buckets)
	clear(t.results)
	t.buckets, t.at, t.results = t.buckets[:0], t.at[:0], t.results[:0]
	s.trips.Put(t)
}
