package memorybackend

import (
	"math"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// How many slots are looked at on each occasion.
const (
	sweepPerInsert  = 8   // for lapsed buckets, by each call that adds one
	sweepPerRenewal = 2   // the same, by each call that finds its own one lapsed
	sweepForClosed  = 32  // for lapsed ones when a closed bucket finds no room
	sample          = 32  // for a bucket to forget, when the shard is full
	wideSample      = 512 // the same, while all seen so far are more in use than the new one
)

// maxHeat is for how many looks that come by without finding another call on it a bucket is kept rather than others.
const maxHeat = 7

// sweepLocked looks at the next n slots and forgets the lapsed buckets among them.
func (s *shard) sweepLocked(n int, now int64) {
	for range n {
		if here := &s.slots[s.hand]; here.kind != 0 && here.lapsed(now) {
			s.dropLocked(s.hand) // which may bring another one here
			continue
		}
		s.hand = s.next(s.hand)
	}
}

// tidyLocked looks at n slots for lapsed buckets, and takes a smaller table when there were many.
func (s *shard) tidyLocked(n int, now int64) {
	s.sweepLocked(n, now)
	if s.sparse() {
		s.resizeLocked(now)
	}
}

// makeRoomLocked forgets one bucket: a lapsed one, else the one in a sample that has the smallest share in use, since that
// gives the least away. One that has been called again of late counts as more in use, so that many keys called once drive
// each other out and not the drained one that somebody goes on calling. It never forgets a closed one, and returns false if
// there are no others. A new bucket of which spent will be in use makes the search go on until it finds one that does not
// count more.
func (s *shard) makeRoomLocked(spent float64, now int64) bool {
	best, least := -1, math.Inf(1)
	for seen := range s.slots {
		n := &s.slots[s.hand]
		switch {
		case n.kind == 0:
		case n.lapsed(now):
			s.dropLocked(s.hand)
			return true
		case !n.closed:
			if share := s.missingLocked(n, now) / n.capacity * float64(1+n.heat); share < least {
				best, least = s.hand, share
			}
			n.heat -= min(n.heat, 1)
		}
		s.hand = s.next(s.hand)
		if best >= 0 && (seen >= sample && least <= spent || seen >= wideSample) {
			break
		}
	}
	if best < 0 {
		return false
	}
	s.evicted++
	s.evictedTokens += s.missingLocked(&s.slots[best], now)
	s.dropLocked(best)
	return true
}

// missingLocked is how much of a bucket is in use: what its client is given by forgetting it.
func (s *shard) missingLocked(n *slot, now int64) float64 {
	if n.kind == algorithm.SlidingLog {
		return float64(s.logs[n.log].Count(n.limits(), now))
	}
	return n.capacity - n.tokens().Remaining(n.limits(), now)
}
