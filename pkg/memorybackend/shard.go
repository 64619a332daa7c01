package memorybackend

import (
	"sync"
	"sync/atomic"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// shard is a part of the buckets under one lock.
type shard struct {
	mu sync.Mutex
	table
	clock algorithm.Clock // for all its buckets: they need none of their own
	hand  int             // where the next look for buckets to forget begins

	logs     []algorithm.Log
	freeLogs []uint32
	none     algorithm.Log // what a log that is not held looks like; never written
	runs     *budget

	most       int // buckets
	mostClosed int // closed ones among them, so that others always find one to take the place of
	closed     int

	evicted       uint64
	evictedTokens float64
	joins         uint64
	overflows     uint64

	_ [64]byte // no two locks in one cache line
}

// budget bounds what the logs of all shards hold together.
type budget struct {
	used atomic.Int64
	most int64
}

func (b *budget) reserve(n int) bool {
	if b.used.Add(int64(n)) <= b.most {
		return true
	}
	b.used.Add(int64(-n))
	return false
}

// insertLocked makes a slot for a bucket that is not there. It returns -1 if every bucket is one that must be kept. spent
// is the share of the new bucket that will be in use.
func (s *shard) insertLocked(n *slot, spent float64, now int64) int {
	s.sweepLocked(sweepPerInsert, now)
	if s.held >= s.most && !s.makeRoomLocked(spent, now) {
		return -1
	}
	if s.crowded() || s.sparse() {
		s.resizeLocked(now)
	}
	if n.kind == algorithm.SlidingLog {
		n.log = s.newLogLocked()
	}
	if n.closed {
		s.closed++
	}
	return s.put(n)
}

// dropLocked forgets bucket i.
func (s *shard) dropLocked(i int) {
	n := &s.slots[i]
	if n.kind == algorithm.SlidingLog {
		s.freeLogLocked(n.log)
	}
	if n.closed {
		s.closed--
	}
	s.remove(i)
}

// resizeLocked fits the table to the buckets that are not lapsed.
func (s *shard) resizeLocked(now int64) {
	live := 0
	for i := range s.slots {
		if n := &s.slots[i]; n.kind != 0 && !n.lapsed(now) {
			live++
		}
	}
	old := s.slots
	s.table = table{slots: make([]slot, min(slotsFor(live), s.most*loadDen/loadNum+firstSlots))}
	s.hand, s.closed = 0, 0
	for i := range old {
		n := &old[i]
		switch {
		case n.kind == 0:
		case n.lapsed(now):
			if n.kind == algorithm.SlidingLog {
				s.freeLogLocked(n.log)
			}
		default:
			s.put(n)
			if n.closed {
				s.closed++
			}
		}
	}
}

// setClosedLocked keeps count of the closed buckets when a reload changes what a policy does on failure.
func (s *shard) setClosedLocked(n *slot, closed bool) {
	if n.closed == closed {
		return
	}
	n.closed = closed
	if closed {
		s.closed++
		return
	}
	s.closed--
}
