package accuracy

import (
	"cmp"
	"slices"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// span is something that happened to a bucket between two times.
type span struct {
	start, end int64
	// settled is when nothing more comes of it: later than end where it could be given back, or charged, after the answer.
	settled int64
	units   float64
	entry   int32 // in the record; -1: a fault, or what was before the record
}

// history is what happened to one bucket, by what it means for the checks. Times count from the beginning of the record.
type history struct {
	bucket uint32
	shares bool // of what instances decided by their shares while the store failed, rather than of what the store did
	limits algorithm.Limits

	charged  []span // surely
	possible []span // what may have been charged: all that surely was, and more
	held     []span // what may have been charged for a while, and was given back
	gifts    []span // what may have come back
	denials  []span // units is the cost
	readings []reading
}

// reading is what a bucket said that it has left.
type reading struct {
	span
	left    float64
	charged bool // after the charge of the same entry
}

func (h *history) empty() bool {
	return len(h.charged)+len(h.possible)+len(h.denials)+len(h.readings) == 0
}

func (h *history) log() bool { return h.limits.Kind == algorithm.SlidingLog }

// rate is in tokens for a nanosecond.
func (h *history) rate() float64 { return h.limits.Rate / 1000 }

// prepare sorts what the checks want sorted by time.
func (h *history) prepare() {
	byStart := func(a, b span) int { return cmp.Compare(a.start, b.start) }
	slices.SortFunc(h.charged, byStart)
	slices.SortFunc(h.gifts, byStart)
	slices.SortFunc(h.denials, byStart)
	slices.SortFunc(h.held, byStart)
	slices.SortFunc(h.possible, func(a, b span) int { return cmp.Compare(a.end, b.end) })
	slices.SortFunc(h.readings, func(a, b reading) int { return cmp.Compare(a.start, b.start) })
}

// inOrder is the record with its entries in the order of their calls.
func inOrder(r *Record) *Record {
	byCall := func(a, b Entry) int { return cmp.Compare(a.Call, b.Call) }
	if slices.IsSortedFunc(r.Entries, byCall) {
		return r
	}
	sorted := *r
	sorted.Entries = slices.Clone(r.Entries)
	slices.SortStableFunc(sorted.Entries, byCall)
	return &sorted
}

// sort makes the histories, call by call, and checks each call by itself.
func (c *checker) sort(v *Verdict) {
	n := len(c.record.Buckets)
	c.histories = make([]history, 2*n)
	for i, b := range c.record.Buckets {
		h := &c.histories[i]
		h.bucket, h.limits = uint32(i), b.Limits
		c.histories[n+i] = history{bucket: uint32(i), shares: true, limits: b.Limits}
		if !b.Fresh {
			h.possible = append(h.possible, span{units: b.Limits.Capacity, entry: -1})
		}
	}
	c.sortFaults()
	all := c.record.Entries
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && all[to].Call == all[from].Call {
			to++
		}
		v.Calls++
		call := c.call(from, to)
		for i := from; i < to; i++ {
			c.sortEntry(i, call)
		}
		if !call.whole {
			v.split(c, from, to)
		}
		v.count(all[from:to])
		from = to
	}
	for i := range c.histories {
		// A bucket that nobody called needs no judgement for what was before.
		if h := &c.histories[i]; len(h.charged)+len(h.denials)+len(h.readings) == 0 {
			h.possible = nil
		}
	}
}

// sortFaults notes what faults may have given, and that nothing is known of a bucket after one: it may be empty.
func (c *checker) sortFaults() {
	for _, f := range c.record.Faults {
		buckets := f.Buckets
		if len(buckets) == 0 {
			buckets = identity(len(c.record.Buckets))
		}
		for _, b := range buckets {
			h := &c.histories[b]
			s := span{start: f.From - c.origin, end: f.To - c.origin, settled: f.To - c.origin, entry: -1}
			s.units = h.limits.Capacity
			h.possible = append(h.possible, s)
			if s.units = f.Units + f.Capacities*h.limits.Capacity; s.units > 0 {
				h.gifts = append(h.gifts, s)
			}
		}
	}
}

// call is what the entries of one call have in common.
type call struct {
	whole  bool // admitted by all, or denied by somebody
	parted bool // decided in several groups, so that a charge may have been given back
	failed bool // somebody else than the store had a say, so that a charge may have been made nobody knows when
}

func (c *checker) call(from, to int) call {
	got := call{whole: true}
	denied, silent := false, false
	first := &c.record.Entries[from]
	for i := from; i < to; i++ {
		e := &c.record.Entries[i]
		switch e.Outcome {
		case Denied:
			denied = denied || e.Op == Take || e.Op == Peek
		case Unknown, Unasked:
			silent = true
		default:
		}
		got.whole = got.whole && e.Passed == first.Passed
		got.failed = got.failed || e.Outcome == Unknown || e.Source == FromLocal || e.Source == FromOpen || e.Source == FromClosed
		got.parted = got.parted || c.record.Buckets[e.Bucket].Group != c.record.Buckets[first.Bucket].Group
	}
	got.whole = got.whole && (first.Passed && !denied || !first.Passed && (denied || silent))
	return got
}

// sortEntry puts an entry where it belongs in its bucket's history.
func (c *checker) sortEntry(i int, in call) {
	e := &c.record.Entries[i]
	h := &c.histories[e.Bucket]
	s := span{start: e.Start - c.origin, end: e.End - c.origin, units: float64(e.Cost), entry: int32(i)}
	s.settled = s.end
	if in.parted || in.failed {
		s.settled += int64(c.Settle)
	}
	late := s // as much as may have been charged after the answer
	late.end = late.settled
	switch {
	case e.Op == Refund:
		c.give(h, late)
	case e.Op == Reset:
		h.possible = append(h.possible, late)
		late.units = h.limits.Capacity
		c.give(h, late)
	case e.Op == Force:
		h.possible = append(h.possible, late)
	case e.Op == Take && e.Passed && e.Source == FromStore && e.Outcome != Unknown:
		h.charged = append(h.charged, s)
		h.possible = append(h.possible, s)
	case e.Op == Take && e.Passed && e.Source == FromLocal && e.Outcome != Unknown:
		c.sharesOf(h).charged = append(c.sharesOf(h).charged, s)
		h.possible = append(h.possible, late) // by whoever pays what it owes the store
	case e.Op == Take && (e.Outcome == Unknown || e.Source == FromClosed || e.Source == FromOpen || in.failed && e.Outcome != Denied):
		h.possible = append(h.possible, late)
	case e.Op == Take && in.parted && e.Outcome != Denied && !e.Passed:
		h.hold(late)
	default:
	}
	if e.Outcome == Denied && (e.Source == FromStore || e.Source == FromCache) {
		h.denials = append(h.denials, s)
	}
	if e.Left == e.Left && e.Source == FromStore && e.Outcome != Unknown && e.Outcome != Unasked {
		h.readings = append(h.readings, reading{s, e.Left, e.Op == Take && e.Passed})
	}
}

// give notes what callers give back: to the store, or to a share of what it admitted.
func (c *checker) give(h *history, s span) {
	h.gifts = append(h.gifts, s)
	c.sharesOf(h).gifts = append(c.sharesOf(h).gifts, s)
}

// sharesOf is the history of what shares did with the same bucket. They are judged by themselves: together they keep the limit, and so does
// the store, which does not know of them until it is charged. Nothing that befalls the store gives them anything.
func (c *checker) sharesOf(h *history) *history {
	return &c.histories[len(c.record.Buckets)+int(h.bucket)]
}

// hold notes what was given back. Of a token bucket it may have cost the refill of the time for which it was held.
func (h *history) hold(s span) {
	h.held = append(h.held, s)
	if h.log() {
		return
	}
	if s.units = min(s.units, h.rate()*float64(s.end-s.start)); s.units > 0 {
		h.possible = append(h.possible, s)
	}
}
