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
	s.tidyLocked(sweepPerInsert, now)
	if s.held >= s.most && !s.makeRoomLocked(spent, now) {
		return -1
	}
	if s.crowded() {
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

// resizeLocked fits the table and the list of logs to the buckets that are not lapsed.
func (s *shard) resizeLocked(now int64) {
	live, liveLogs := 0, 0
	for i := range s.slots {
		if n := &s.slots[i]; n.kind != 0 && !n.lapsed(now) {
			live++
			if n.kind == algorithm.SlidingLog {
				liveLogs++
			}
		}
	}
	old, oldLogs := s.slots, s.logs
	s.table = table{slots: make([]slot, min(slotsFor(live), s.most*loadDen/loadNum+firstSlots))}
	s.logs, s.freeLogs = make([]algorithm.Log, 0, liveLogs+liveLogs/4), nil
	s.hand, s.closed = 0, 0
	for i := range old {
		if n := &old[i]; n.kind != 0 {
			s.moveLocked(n, oldLogs, now)
		}
	}
}

// moveLocked puts a bucket into a new table, unless it is lapsed.
func (s *shard) moveLocked(n *slot, logs []algorithm.Log, now int64) {
	lapsed := n.lapsed(now)
	if n.kind == algorithm.SlidingLog {
		if lapsed {
			s.runs.used.Add(int64(-logs[n.log].Room()))
			return
		}
		s.logs = append(s.logs, logs[n.log])
		n.log = uint32(len(s.logs) - 1)
	}
	if lapsed {
		return
	}
	if n.closed {
		s.closed++
	}
	s.put(n)
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
