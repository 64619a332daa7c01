package simulate

import (
	"math"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Suggestion are numbers for a policy under which it would have denied at most the wished share of its requests, each the smallest of its
// kind: one step less denies more. They are found by replaying what the policy was asked under its own numbers, by itself: as if no other
// policy had denied anything.
type Suggestion struct {
	Requests int64   `json:"requests"` // that were replayed
	Now      Variant `json:"now"`      // the policy's numbers as they are
	// Capacity has another capacity, or a sliding log's limit; the rate or window stays.
	Capacity *Variant `json:"capacity,omitempty"`
	// Refill has another refill, in whole tokens per the unit that the policy is written in. Nil for a sliding log, and where calls at one
	// instant ask for more than the capacity.
	Refill *Variant `json:"refill,omitempty"`
	// Both has both in the same proportion as now. Nil for a sliding log and a capacity of 0.
	Both *Variant `json:"both,omitempty"`
	// KeptKeys is the share of keys that were replayed: less than 1 in a log with more demand than is kept, and then all this is an estimate.
	KeptKeys float64 `json:"keptKeys"`
	// Cut says that only the beginning of the log was replayed.
	Cut bool `json:"cut,omitempty"`
}

// Variant are numbers of a policy, and the share of its requests that they deny.
type Variant struct {
	Capacity  float64 `json:"capacity"` // of a sliding log: the limit
	Refill    float64 `json:"refill,omitempty"`
	Unit      string  `json:"unit,omitempty"`
	Window    string  `json:"window,omitempty"`
	DenyShare float64 `json:"denyShare"`
}

// Point says what share of its requests a policy would deny at another capacity and the rate that it has.
type Point struct {
	Capacity  float64 `json:"capacity"`
	DenyShare float64 `json:"denyShare"`
}

// mostNumber is the largest number that a policy file may have.
const mostNumber = 999_999_999_999_999

// search replays a policy's demand under other numbers.
type search struct {
	numbers *policy.Numbers
	source  *timeline
	keys    []demandOfKey
	ring    []algorithm.Run
	total   uint64
	allowed uint64 // how many of total may be denied
}

// demandOfKey is what one key asked for, by time.
type demandOfKey struct {
	events []event
	total  uint64
}

// newSearch gives nil where there is nothing to search in.
func newSearch(n *policy.Numbers, l *timeline, share float64) *search {
	if len(l.events) == 0 {
		return nil
	}
	s := &search{numbers: n, source: l, keys: byKey(l.events), total: uint64(len(l.events))}
	s.allowed = uint64(share * float64(s.total))
	for i := range s.keys {
		k := &s.keys[i]
		for _, e := range k.events {
			k.total += uint64(max(e.cost, 1))
		}
	}
	return s
}

// byKey parts events by key; those of one key stay in order.
func byKey(events []event) []demandOfKey {
	places := map[uint32]int{}
	var counts []int
	for _, e := range events {
		place, ok := places[e.key]
		if !ok {
			place = len(counts)
			places[e.key] = place
			counts = append(counts, 0)
		}
		counts[place]++
	}
	sorted := make([]event, len(events))
	keys := make([]demandOfKey, len(counts))
	from := 0
	for i, n := range counts {
		keys[i].events = sorted[from : from : from+n]
		from += n
	}
	for _, e := range events {
		k := &keys[places[e.key]]
		k.events = append(k.events, e)
	}
	return keys
}

// denied is how many requests are denied under l. It stops counting above most.
func (s *search) denied(l algorithm.Limits, most uint64) (n uint64) {
	for i := range s.keys {
		k := &s.keys[i]
		if float64(k.total) <= l.Capacity {
			continue // even without any refill there is enough
		}
		if l.Kind == algorithm.SlidingLog {
			n += s.deniedByLog(l, k)
		} else {
			n += deniedByBucket(l, k)
		}
		if n > most {
			return n
		}
	}
	return n
}

func deniedByBucket(l algorithm.Limits, k *demandOfKey) (n uint64) {
	bucket := algorithm.NewTokens(l, k.events[0].at)
	for _, e := range k.events {
		after, ok := bucket.Take(l, uint64(max(e.cost, 1)), e.at)
		if !ok {
			n++
		}
		if e.cost > 0 {
			bucket = after
		}
	}
	return n
}

func (s *search) deniedByLog(l algorithm.Limits, k *demandOfKey) (n uint64) {
	if room := int(min(l.Capacity, float64(len(k.events)))) + 1; len(s.ring) < room {
		s.ring = make([]algorithm.Run, room)
	}
	log := algorithm.NewLog(s.ring)
	for _, e := range k.events {
		switch {
		case e.cost == 0 && log.Remaining(l, e.at) == 0:
			n++
		case e.cost > 0 && !log.Take(l, uint64(e.cost), e.at):
			n++
		}
	}
	return n
}

// suggest searches the smallest numbers of each kind.
func (s *search) suggest() *Suggestion {
	n := s.numbers
	g := &Suggestion{Requests: int64(s.total), KeptKeys: 1 / float64(uint64(1)<<s.source.halved), Cut: s.source.cut}
	g.Now = s.variant(n.Capacity, n.Refill)
	g.Capacity = s.smallest(n.Capacity, func(c float64) (float64, float64) { return c, n.Refill })
	if n.Kind == algorithm.SlidingLog {
		return g
	}
	g.Refill = s.smallest(n.Refill, func(r float64) (float64, float64) { return n.Capacity, r })
	if n.Capacity > 0 {
		g.Both = s.smallest(n.Capacity, func(c float64) (float64, float64) {
			return c, math.Ceil(n.Refill*c/n.Capacity*1000) / 1000 // as a person would write it
		})
	}
	return g
}

// smallest finds a whole number, 1 or more, at which numbers(n) denies few enough while numbers(n-1) does not. The search begins at guess. Nil
// if there is none.
func (s *search) smallest(guess float64, numbers func(n float64) (capacity, refill float64)) *Variant {
	high, ok := s.bisect(guess, s.allowed, numbers)
	if !ok {
		return nil
	}
	v := s.variant(numbers(high))
	return &v
}

func (s *search) bisect(guess float64, allowed uint64, numbers func(n float64) (capacity, refill float64)) (float64, bool) {
	fits := func(n float64) bool {
		capacity, refill := numbers(n)
		return s.denied(limitsOf(s.numbers, capacity, refill), allowed) <= allowed
	}
	if !fits(mostNumber) {
		return 0, false
	}
	low, high := 0.0, min(max(1, math.Floor(guess)), mostNumber)
	for !fits(high) {
		low, high = high, min(2*high, mostNumber)
	}
	for high-low > 1 {
		if mid := math.Floor((low + high) / 2); fits(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high, true
}

// variant are the policy's numbers with these in their place, and what they deny.
func (s *search) variant(capacity, refill float64) Variant {
	n := s.numbers
	v := Variant{Capacity: capacity, DenyShare: s.share(limitsOf(n, capacity, refill))}
	if n.Kind == algorithm.SlidingLog {
		v.Window = policy.FormatWindow(n.Window)
		return v
	}
	v.Refill, v.Unit = refill, n.Unit.String()
	return v
}

func (s *search) share(l algorithm.Limits) float64 {
	return float64(s.denied(l, math.MaxUint64)) / float64(s.total)
}

// curvePoints is how many points a curve has at most.
const curvePoints = 24

// curve gives the denial share by capacity, from 1 to where nothing is denied.
func (s *search) curve() []Point {
	capacityOnly := func(c float64) (float64, float64) { return c, s.numbers.Refill }
	most, ok := s.bisect(s.numbers.Capacity, 0, capacityOnly)
	if !ok {
		return nil
	}
	var points []Point
	for i := range curvePoints {
		c := math.Round(math.Pow(most, float64(i)/(curvePoints-1)))
		if len(points) > 0 && points[len(points)-1].Capacity == c {
			continue
		}
		points = append(points, Point{c, s.share(limitsOf(s.numbers, c, s.numbers.Refill))})
	}
	return points
}
