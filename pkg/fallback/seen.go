package fallback

import (
	"math"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const (
	seenWays    = 5 // in two cache lines, with the lock
	defaultSeen = 320_000
	leastSeen   = 16 * seenWays
)

// seen remembers what the store last said that buckets have left, for when it cannot say any more. It is a table of fixed size: where
// there is no room the oldest goes. A bucket that is not in it is taken for full, so that what is forgotten admits a client at most its
// capacity over all instances.
//
// It is written with each answer about a bucket that could be decided locally. Its locks cover a few buckets each, and are held for
// a few writes to memory.
type seen struct {
	mask uint64
	sets []seenSet
}

// seenSet is as long as two cache lines.
type seenSet struct {
	mu    sync.Mutex
	slots [seenWays]seenSlot
}

// seenSlot is one bucket. tag is half of the identity, the other half chooses the set.
type seenSlot struct {
	tag       uint64
	remaining float64
	at        int64 // nanoseconds on the owner's clock, never 0; 0: free
}

func newSeen(entries int) *seen {
	if entries <= 0 {
		entries = defaultSeen
	}
	sets := 1
	for sets*seenWays < max(entries, leastSeen) {
		sets *= 2
	}
	return &seen{mask: uint64(sets - 1), sets: make([]seenSet, sets)}
}

// note remembers what a bucket has left at a time, unless something later is known.
func (s *seen) note(id policy.Identity, remaining float64, at int64) {
	set := &s.sets[id.A&s.mask]
	set.mu.Lock()
	defer set.mu.Unlock()
	slot, oldest := 0, int64(math.MaxInt64)
	for i := range set.slots {
		if e := &set.slots[i]; e.tag == id.B {
			if e.at > at {
				return
			}
			slot = i
			break
		} else if e.at < oldest {
			slot, oldest = i, e.at
		}
	}
	set.slots[slot] = seenSlot{id.B, remaining, at}
}

// forget makes a bucket one that was never seen.
func (s *seen) forget(id policy.Identity) {
	set := &s.sets[id.A&s.mask]
	set.mu.Lock()
	defer set.mu.Unlock()
	for i := range set.slots {
		if set.slots[i].tag == id.B {
			set.slots[i] = seenSlot{}
		}
	}
}

// remaining is the most that a bucket can have left at a time, as far as was seen: nobody may have spent anything since.
func (s *seen) remaining(id policy.Identity, l *algorithm.Limits, at int64) float64 {
	set := &s.sets[id.A&s.mask]
	set.mu.Lock()
	defer set.mu.Unlock()
	for i := range set.slots {
		e := &set.slots[i]
		if e.tag != id.B || e.at == 0 {
			continue
		}
		passed := max(0, at-e.at) / int64(time.Microsecond)
		if l.Kind == algorithm.SlidingLog {
			if passed >= l.Window {
				return l.Capacity
			}
			return min(l.Capacity, e.remaining)
		}
		return min(l.Capacity, e.remaining+float64(float64(passed)*l.Rate))
	}
	return l.Capacity
}

// Learn takes in what Store said to a call of which Acquire did not wait for the end. It was sent at that time: what Store has said of a bucket
// to a call that ended later counts for more. Shards that are kept from calls are asked by the next one: they may be back.
func (s *Store) Learn(buckets []ratelimit.Bucket, results []ratelimit.Result, sent time.Time) {
	s.local.watch(buckets, results, s.local.clock(sent))
	for i := range buckets {
		s.shards.heard(buckets[i].Key.Bytes())
	}
}

// Replaced tells that somebody has given a bucket another state in Store, without this Store, and what it has left now: what was decided
// locally before, and what Store was to be charged for it, counts no more.
func (s *Store) Replaced(key policy.Key, remaining float64) { s.local.replaced(key, remaining, true) }

// Refunded tells that somebody has given something back to a bucket in Store, without this Store, and what it has left now.
func (s *Store) Refunded(key policy.Key, remaining float64) { s.local.replaced(key, remaining, false) }

func (l *local) replaced(key policy.Key, remaining float64, forgive bool) {
	if l.store == nil {
		return
	}
	ids := []policy.Identity{l.ids.Identify(key.Bytes())}
	defer l.debts.unlock(l.debts.lock(ids))
	if forgive {
		l.debts.forgiveLocked(ids[0])
		l.ask([]ratelimit.Bucket{{Key: key, Op: ratelimit.Reset, Cost: 1}}, nil)
	}
	l.seen.note(ids[0], remaining, l.now())
}

// watch learns from the store's answers, which hold at a time; 0: now. It is on the path of every decision.
func (l *local) watch(buckets []ratelimit.Bucket, results []ratelimit.Result, at int64) {
	if l.store == nil {
		return
	}
	for i := range buckets {
		b, r := &buckets[i], &results[i]
		if b.OnFailure != policy.Local || r.Err != nil || r.Source != ratelimit.FromStore {
			continue
		}
		if at == 0 {
			at = l.now()
		}
		l.seen.note(l.ids.Identify(b.Key.Bytes()), r.Remaining, at)
	}
}
