package accuracy

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// sweep goes through what was admitted, in the order of the answers, and knows at each moment the interval up to now that holds most
// for its length: of the calls that were made and answered within it.
type sweep struct {
	*history
	c      *checker
	tree   *tree // places: charged, by start
	rate   float64
	window int64 // of a log: two admissions so far apart, or less, are in one window for sure
	gift   int   // the next one
	shut   int   // places before it are too long ago
}

func (c *checker) newSweep(h *history) *sweep {
	s := &sweep{history: h, c: c, tree: newTree(len(h.charged)), rate: h.rate() * (1 + c.Drift)}
	if h.log() {
		s.window = h.shortest(c)
	}
	return s
}

// shortest is how long a window may be by the record's clock at the least.
func (h *history) shortest(c *checker) int64 {
	return int64(float64(h.limits.Window)*1000*(1-c.Drift)) - int64(c.Step)
}

// slack is what arithmetic may be off by, and what may be refilled in the time that the store cannot tell.
func (c *checker) slack(h *history) float64 {
	return 1e-6 + 1e-12*h.limits.Capacity + h.rate()*2*float64(c.Step)
}

// give takes in what may have come back until a time.
func (s *sweep) give(until int64) {
	for ; s.gift < len(s.gifts) && s.gifts[s.gift].start <= until; s.gift++ {
		g := s.gifts[s.gift]
		last := sort.Search(len(s.charged), func(i int) bool { return s.charged[i].start > g.end }) - 1
		s.tree.add(last, -g.units)
	}
}

// admit takes in an admission, which is the next by its end.
func (s *sweep) admit(place int) {
	a := &s.charged[place]
	s.give(a.end)
	s.tree.add(place, a.units)
	if !s.log() {
		s.tree.open(place, s.rate*float64(a.start))
		return
	}
	for ; s.shut < len(s.charged) && s.charged[s.shut].start <= a.end-s.window; s.shut++ {
		s.tree.shut(s.shut)
	}
	if place >= s.shut {
		s.tree.open(place, 0)
	}
}

// excess is by how much the fullest interval that ends at a time exceeds its refill.
func (s *sweep) excess(end int64) float64 { return s.tree.largest() - s.rate*float64(end) }

// judgeAdmissions looks for an interval in which too much was admitted, and for readings of more than there can be.
func (c *checker) judgeAdmissions(h *history, j *judgement) {
	s := c.newSweep(h)
	byEnd := make([]int, len(h.charged))
	for i := range byEnd {
		byEnd[i] = i
	}
	slices.SortFunc(byEnd, func(a, b int) int { return cmp.Compare(h.charged[a].end, h.charged[b].end) })
	worst, from, to := math.Inf(-1), 0, 0
	next := 0
	for _, r := range h.readings {
		for ; next < len(byEnd) && h.charged[byEnd[next]].end < r.start; next++ {
			if e := s.step(byEnd[next]); e > worst {
				worst, from, to = e, s.tree.place(), byEnd[next]
			}
		}
		s.judgeReading(&r, j)
	}
	for ; next < len(byEnd); next++ {
		if e := s.step(byEnd[next]); e > worst {
			worst, from, to = e, s.tree.place(), byEnd[next]
		}
	}
	if len(h.charged) == 0 {
		return
	}
	f := c.interval(h, h.charged[from].start, h.charged[to].end)
	j.peak = Peak{Key: f.Key, Shares: f.Shares, From: f.From, To: f.To, Admitted: f.Got, Bound: f.Bound}
	if worst > h.limits.Capacity+c.slack(h) {
		j.findings = append(j.findings, f)
	}
}

func (s *sweep) step(place int) float64 {
	s.admit(place)
	return s.excess(s.charged[place].end)
}

// judgeReading finds out whether the bucket can have as much left as it says. All that was answered before the reading was asked for has been
// taken in.
func (s *sweep) judgeReading(r *reading, j *judgement) {
	j.counts.Readings++
	s.give(r.start)
	later := 0.0 // what may have come back since, which has not been taken in: it is too late for what is swept next
	for _, g := range s.gifts[s.gift:] {
		if g.start > r.end {
			break
		}
		later += g.units
	}
	most := s.limits.Capacity
	switch {
	case s.log():
		first := sort.Search(len(s.charged), func(i int) bool { return s.charged[i].start > r.end-s.window })
		most = min(most, most-s.tree.from(first)+later)
	default:
		most = min(most, most-s.excess(r.end)+later)
	}
	if r.charged {
		most -= r.units
	}
	if r.left > most+s.c.slack(s.history) {
		j.counts.WrongReadings++
		if j.first(ReadsTooMuch) {
			j.findings = append(j.findings, s.c.point(s.history, ReadsTooMuch, r.span, r.left, most))
		}
	}
}

// interval is the finding that too much was admitted from one time to another.
func (c *checker) interval(h *history, from, to int64) Finding {
	f := c.finding(h, TooMuch, from, to)
	f.Bound = h.limits.Capacity
	if !h.log() {
		f.Bound += h.rate() * (float64(to-from)*(1+c.Drift) + float64(c.Step))
	}
	for _, g := range h.gifts {
		if g.start <= to && g.end >= from {
			f.Bound += g.units
			f.Given += g.units
		}
	}
	first := sort.Search(len(h.charged), func(i int) bool { return h.charged[i].start >= from })
	for _, a := range h.charged[first:] {
		if a.start > to {
			break
		}
		if a.end <= to {
			f.Got += a.units
			f.addCall(c.record.Entries[a.entry].Call)
		}
	}
	return f
}
