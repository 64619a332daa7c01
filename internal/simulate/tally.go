package simulate

import (
	"slices"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// tally counts what became of the requests that a policy applied to.
type tally struct {
	policy     *policy.Policy
	requests   int64
	denied     int64
	never      int64 // of the denied: no waiting would have helped
	skipped    int64 // not counted in requests: they lack the key, and the policy does not insist
	overridden int64 // decided by an override's numbers
	unknown    int64 // of keys that came when no more could be remembered
	series     series
	timeline   timeline
}

func (t *tally) count(c *ratelimit.Check, now int64) {
	t.requests++
	if c.Denied() {
		t.denied++
		if c.Final() {
			t.never++
		}
	}
	t.series.add(now, c.Denied())
}

// maxSlots is how many stretches of time a log is divided into for the plot at most.
const maxSlots = 120

// series counts by time. The stretches get longer as the log does.
type series struct {
	start, width int64 // microseconds
	slots        []Slot
}

func (s *series) add(now int64, denied bool) {
	if len(s.slots) == 0 {
		s.start, s.width = now, 1_000_000
		s.start -= now % s.width
	}
	for (now-s.start)/s.width >= maxSlots {
		s.double()
	}
	n := int((now - s.start) / s.width)
	for len(s.slots) <= n {
		s.slots = append(s.slots, Slot{})
	}
	if denied {
		s.slots[n].Denied++
		return
	}
	s.slots[n].Allowed++
}

// double makes one of each two stretches. The first begins at a multiple of the width, so that those of all policies lie alike.
func (s *series) double() {
	shift := 0
	if s.start%(2*s.width) != 0 {
		shift = 1
	}
	joined := make([]Slot, 0, maxSlots)
	for i, slot := range s.slots {
		n := (i + shift) / 2
		if n == len(joined) {
			joined = append(joined, Slot{})
		}
		joined[n].Allowed += slot.Allowed
		joined[n].Denied += slot.Denied
	}
	s.start -= int64(shift) * s.width
	s.width *= 2
	s.slots = joined
}

// atLeast makes the stretches of s as long as width, a power of two seconds.
func (s *series) atLeast(width int64) {
	for len(s.slots) > 0 && s.width < width {
		s.double()
	}
}

// percentile is the smallest of the sorted counts that at least percent of 100 of them do not exceed.
func percentile(sorted []int64, percent int) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*percent+99)/100-1]
}

func quantiles(counts []int64) Quantiles {
	slices.Sort(counts)
	return Quantiles{percentile(counts, 50), percentile(counts, 99), percentile(counts, 100)}
}
