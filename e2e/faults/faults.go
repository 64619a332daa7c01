// Package faults does to a real Redis what happens to one, while a steady load asks the service for decisions, and judges what came of it: a
// [Load] records every decision, a [Record] prints them as a timeline and has the checks. The scenarios are the package's tests.
package faults

import (
	"cmp"
	"slices"
	"time"
)

// Decision is what came of one call. Times are from the start of the load.
type Decision struct {
	Call
	Due  time.Duration // when it was to be made
	Late time.Duration // how much later it was made
	Took time.Duration // from Due to the answer

	Allowed bool
	Source  string // who decided, as the service says: store, cache, local, open, closed
	Err     error  // in place of an answer
}

// End is when the answer came.
func (d *Decision) End() time.Duration { return d.Due + d.Took }

// ByStore tells whether the store decided, now or by what it said before.
func (d *Decision) ByStore() bool { return d.Source == "store" || d.Source == "cache" }

// ByMode tells whether the policy's failure mode decided.
func (d *Decision) ByMode() bool {
	return d.Source == "local" || d.Source == "open" || d.Source == "closed"
}

// Mark is something that was done, or happened, while the load ran.
type Mark struct {
	At   time.Duration
	What string
}

// Record is what a load has seen. Nothing of it changes any more.
type Record struct {
	Decisions []Decision // in the order of Due
	Marks     []Mark
	// Stalls are when the machine itself stood still, as a [Witness] has it: in order, none touching another.
	Stalls []Span
}

// Span is a time from the start of the load.
type Span struct{ From, To time.Duration }

// Within tells whether a time is in the span. Its end is not.
func (s Span) Within(at time.Duration) bool { return s.From <= at && at < s.To }

// merge sorts spans and joins those that touch.
func merge(spans []Span) []Span {
	slices.SortFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	var merged []Span
	for _, s := range spans {
		if n := len(merged); n > 0 && s.From <= merged[n-1].To {
			merged[n-1].To = max(merged[n-1].To, s.To)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// stalled is for how much of a span the machine stood still.
func (r *Record) stalled(s Span) time.Duration {
	first, _ := slices.BinarySearchFunc(r.Stalls, s.From, func(stall Span, from time.Duration) int { return cmp.Compare(stall.To, from) })
	total := time.Duration(0)
	for _, stall := range r.Stalls[first:] {
		if stall.From >= s.To {
			break
		}
		total += min(stall.To, s.To) - max(stall.From, s.From)
	}
	return total
}

// Stalled is for which share of the load the machine stood still, of 1.
func (r *Record) Stalled() float64 {
	end := time.Duration(0)
	for i := range r.Decisions {
		end = max(end, r.Decisions[i].End())
	}
	if end == 0 {
		return 0
	}
	return float64(r.stalled(Span{0, end})) / float64(end)
}

// net is how long a decision took, without what the machine is to blame for: the time by which the call was made too late, and the time for
// which the machine stood still.
func (r *Record) net(d *Decision) time.Duration {
	return d.Took - d.Late - r.stalled(Span{d.Due + d.Late, d.End()})
}

// aftermath is for how long a moment at which the machine stood still is felt: calls that it made time out open a breaker, which waits for 20 ms
// and then, unless it is over, for 40.
const aftermath = 100 * time.Millisecond

// disturbed tells whether the machine stood still while a decision was under way, or right before.
func (r *Record) disturbed(d *Decision) bool { return r.stalled(Span{d.Due - aftermath, d.End()}) > 0 }

// quantile sorts times and returns the one that a share of them does not exceed; 0 if there are none.
func quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	slices.Sort(times)
	return times[min(len(times)-1, int(share*float64(len(times))))]
}

// Between is the part of the record that lies in a span, with its beginning as the beginning.
func (r *Record) Between(s Span) *Record {
	part := &Record{}
	for _, d := range r.Decisions {
		if s.Within(d.Due) {
			d.Due -= s.From
			part.Decisions = append(part.Decisions, d)
		}
	}
	for _, m := range r.Marks {
		if s.Within(m.At) {
			part.Marks = append(part.Marks, Mark{m.At - s.From, m.What})
		}
	}
	for _, stall := range r.Stalls {
		if stall.To > s.From && stall.From < s.To {
			part.Stalls = append(part.Stalls, Span{max(0, stall.From-s.From), stall.To - s.From})
		}
	}
	return part
}

// Select returns the decisions on some shards (none: all) that were due within a span.
func (r *Record) Select(s Span, shards ...int) []*Decision {
	var chosen []*Decision
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if s.Within(d.Due) && (len(shards) == 0 || slices.Contains(shards, d.Shard)) {
			chosen = append(chosen, d)
		}
	}
	return chosen
}

// Latencies are how long decisions took.
func Latencies(of []*Decision) []time.Duration {
	times := make([]time.Duration, len(of))
	for i, d := range of {
		times[i] = d.Took
	}
	return times
}

// Quantile is how long a share of the decisions took at most, in all.
func Quantile(of []*Decision, share float64) time.Duration { return quantile(Latencies(of), share) }

// Count is how many decisions a test holds for.
func Count(of []*Decision, holds func(*Decision) bool) int {
	n := 0
	for _, d := range of {
		if holds(d) {
			n++
		}
	}
	return n
}
