package rejectcache

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const ways = 4

// set is a few entries under one lock. An identity belongs to one set, and finds room there or takes somebody else's.
type set struct {
	mu      sync.Mutex
	entries [ways]entry
	// barrier is the time, in nanoseconds since the cache was made, up to which something may have been given back to a bucket of
	// the set: what calls sent before it were told need no longer be true.
	barrier int64
	denials uint64
	learnt  uint64
}

// verdict is what a set says about a bucket.
type verdict uint8

const (
	unknown verdict = iota
	known           // something is, but not that the bucket denies; perhaps not told of what is too old to deny anything
	denied
)

// find denies b if an entry says so.
func (s *set) find(id policy.Identity, b *ratelimit.Bucket, now, maxAge int64, r *ratelimit.Result) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := unknown
	for i := range s.entries {
		e := &s.entries[i]
		if e.id != id || e.limits.Kind == 0 {
			continue
		}
		v = known
		if e.same(id, b) && e.limits == b.Limits && now-e.sent < e.lasts(maxAge) && e.denies(b, now) {
			e.describe(b, now, r)
			s.denials++
			return denied
		}
	}
	return v
}

// drop forgets a bucket that is not what it was known to be.
func (s *set) drop(id policy.Identity) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropLocked(id)
}

func (s *set) dropLocked(id policy.Identity) {
	for i := range s.entries {
		if s.entries[i].id == id {
			s.entries[i] = entry{}
		}
	}
}

// learn notes a denial, unless what it says may be out of date, and in newest when it was sent.
func (s *set) learn(fresh entry, b *ratelimit.Bucket, maxAge int64, newest *atomic.Int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if fresh.sent <= s.barrier {
		return
	}
	at := s.place(fresh.id, b, fresh.received, maxAge)
	if old := &s.entries[at]; old.same(fresh.id, b) && old.limits == fresh.limits && old.sent > fresh.sent {
		return
	}
	s.entries[at] = fresh
	newest.Store(max(newest.Load(), fresh.sent))
	s.learnt++
}

// place is where an entry belongs: in the place of the one that it replaces, else in that of the oldest.
func (s *set) place(id policy.Identity, b *ratelimit.Bucket, now, maxAge int64) int {
	at, oldest := 0, now
	for i := range s.entries {
		e := &s.entries[i]
		if e.same(id, b) {
			return i
		}
		sent := e.sent
		if e.limits.Kind == 0 {
			sent = now - 2*maxAge
		}
		if sent < oldest {
			at, oldest = i, sent
		}
	}
	return at
}

// forget drops all that is known of a bucket, and keeps what calls sent before barrier will be told from being learnt.
func (s *set) forget(id policy.Identity, barrier int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.barrier = max(s.barrier, barrier)
	s.dropLocked(id)
}

// denial makes an entry of a result, and reports whether it is worth one.
func denial(id policy.Identity, b *ratelimit.Bucket, r *ratelimit.Result, sent, received int64) (entry, bool) {
	if r.Err != nil || r.Outcome != ratelimit.Denied || r.Source != ratelimit.FromStore || r.Wait <= 0 {
		return entry{}, false
	}
	e := entry{
		id: id, limits: b.Limits, sent: sent, received: received, remaining: r.Remaining, tentative: r.Tentative,
		cost: b.Cost, wait: int64(min(r.Wait, longest)), reset: int64(min(r.Reset, longest)),
	}
	return e, b.Limits.Kind == algorithm.TokenBucket || b.Limits.Kind == algorithm.SlidingLog
}

// longest is a wait to which times can be added.
const longest = 100 * 365 * 24 * time.Hour
