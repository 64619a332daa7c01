package memorybackend

import (
	"math/bits"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// slot is a bucket in a table: 56 bytes without a pointer, so that the garbage collector never looks at tables.
type slot struct {
	id policy.Identity
	// level is a token bucket's level at last; a log's entries are in the shard's logs.
	level float64
	last  int64
	// capacity and pace are the limits that say when the bucket is full again: those of the last charge, or later ones
	// that need longer. pace is a token bucket's rate, or a log's window, which is exact in a float64 for 285 years.
	capacity float64
	pace     float64
	log      uint32
	kind     algorithm.Kind // zero: the slot is free
	closed   bool
	heat     uint8 // falls from maxHeat, which each call on the bucket sets, with each look for a bucket to forget
}

func (s *slot) limits() algorithm.Limits {
	if s.kind == algorithm.SlidingLog {
		return algorithm.Limits{Kind: s.kind, Capacity: s.capacity, Window: int64(s.pace)}
	}
	return algorithm.Limits{Kind: s.kind, Capacity: s.capacity, Rate: s.pace}
}

func (s *slot) setLimits(l *algorithm.Limits) {
	s.kind, s.capacity, s.pace = l.Kind, l.Capacity, pace(l)
}

func pace(l *algorithm.Limits) float64 {
	if l.Kind == algorithm.SlidingLog {
		return float64(l.Window)
	}
	return l.Rate
}

func (s *slot) tokens() algorithm.Tokens {
	return algorithm.Tokens{Level: s.level, Clock: algorithm.Clock{Last: s.last}}
}

// lapsed reports whether the bucket is as good as new at now.
func (s *slot) lapsed(now int64) bool {
	if s.kind == algorithm.SlidingLog {
		return s.last+int64(s.pace) <= now
	}
	return s.tokens().Remaining(s.limits(), now) >= s.capacity
}

// The table grows by two fifths when four fifths of it are in use.
const (
	firstSlots = 8
	loadNum    = 4
	loadDen    = 5
	growNum    = 7
	growDen    = 5
)

// table is a hash table with open addressing, linear probing and no tombstones. It always has a free slot.
type table struct {
	slots []slot
	held  int
}

func newTable() table { return table{slots: make([]slot, firstSlots)} }

// home is where a bucket belongs if there were no others.
func (t *table) home(id policy.Identity) int {
	hi, _ := bits.Mul64(id.B, uint64(len(t.slots)))
	return int(hi)
}

func (t *table) next(i int) int {
	if i++; i < len(t.slots) {
		return i
	}
	return 0
}

// find returns where the bucket is, or -1.
func (t *table) find(id policy.Identity) int {
	for i := t.home(id); t.slots[i].kind != 0; i = t.next(i) {
		if t.slots[i].id == id {
			return i
		}
	}
	return -1
}

// put copies a bucket that is not there yet into a free slot. There must be room.
func (t *table) put(s *slot) int {
	i := t.home(s.id)
	for t.slots[i].kind != 0 {
		i = t.next(i)
	}
	t.slots[i] = *s
	t.held++
	return i
}

// remove frees slot i and moves those behind it up, so that no search ends too early.
func (t *table) remove(i int) {
	for j := t.next(i); t.slots[j].kind != 0; j = t.next(j) {
		home := t.home(t.slots[j].id)
		if between := i < home && home <= j || j < i && (home <= j || i < home); between {
			continue
		}
		t.slots[i] = t.slots[j]
		i = j
	}
	t.slots[i] = slot{}
	t.held--
}

// crowded reports whether one bucket more needs a bigger table.
func (t *table) crowded() bool { return (t.held+1)*loadDen > len(t.slots)*loadNum }

// sparse reports whether the table is much bigger than its buckets need.
func (t *table) sparse() bool { return len(t.slots) > 8*firstSlots && t.held*8 < len(t.slots) }

// slotsFor is how many slots a table gets that is to hold n buckets and some more.
func slotsFor(n int) int {
	return max(firstSlots, (n+1)*loadDen*growNum/(loadNum*growDen)+1)
}
