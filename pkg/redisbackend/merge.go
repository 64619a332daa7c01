package redisbackend

import (
	"bytes"
	"hash/maphash"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// sameCalls finds identical calls in a batch, so that one run of the script decides all of them. A busy key may have most of a batch.
type sameCalls struct {
	seed  maphash.Seed
	table [2 * mostInBatch]uint16 // by hash: the place of a call in the batch, from 1
}

// merge takes out of calls those that ask for the same as an earlier one, which is sent for them.
func (s *sameCalls) merge(calls []*call) []*call {
	if len(calls) < 2 {
		return calls
	}
	clear(s.table[:])
	kept := calls[:0]
	for _, c := range calls {
		if c.mergeable {
			slot := s.slot(c, kept)
			if *slot > 0 {
				kept[*slot-1].join(c)
				continue
			}
			*slot = uint16(len(kept) + 1)
		}
		kept = append(kept, c)
	}
	clear(calls[len(kept):])
	return kept
}

// slot is where an identical call is in the table, or where there is room for this one.
func (s *sameCalls) slot(c *call, calls []*call) *uint16 {
	for i := maphash.Bytes(s.seed, c.memory); ; i++ {
		slot := &s.table[i%uint64(len(s.table))]
		if *slot == 0 || calls[*slot-1].same(c) {
			return slot
		}
	}
}

// mergeable reports whether a call can be decided along with others of its kind: whether it is nothing but takes and peeks of enforced
// buckets. A shadow bucket may admit more or fewer of them than the others do.
func mergeable(buckets []ratelimit.Bucket, at []int) bool {
	for _, i := range at {
		if b := &buckets[i]; b.Shadow || !takes(b.Op) {
			return false
		}
	}
	return true
}

// same reports whether another call has the same arguments, which all stand in memory, and goes the same way.
func (c *call) same(other *call) bool {
	if c.asking != other.asking || len(c.spans) != len(other.spans) || !bytes.Equal(c.memory, other.memory) {
		return false
	}
	for i := range c.spans {
		if len(c.spans[i].b) != len(other.spans[i].b) {
			return false
		}
	}
	return true
}

// join has a call sent for another one, too, that came later.
func (c *call) join(later *call) {
	if c.last == nil {
		c.last = c
	}
	c.last.next, c.last = later, later
	c.place.of++
	c.load = c.load || later.load
}
