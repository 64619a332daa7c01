package accuracy

import (
	"cmp"
	"math"
	"slices"
	"sort"
)

// judgeDenials looks for denials while enough was there for sure, and for readings of less than there must be.
func (c *checker) judgeDenials(h *history, j *judgement) {
	if len(h.denials)+len(h.readings) == 0 {
		return
	}
	m := c.mostCharged(h)
	// there is what is there at least during a span, and what that may be off by: whole units are exact, what is refilled is not.
	there := func(s span) (least, slack float64) {
		missing := m.over(s.start, s.end)
		if missing > 0 && h.rate() > 0 {
			slack = c.slack(h)
		}
		return h.limits.Capacity - missing, slack
	}
	for _, d := range h.denials {
		j.counts.Denials++
		least, slack := there(d)
		if least-slack < d.units {
			continue
		}
		j.counts.WrongDenials++
		if j.first(WronglyDenied) {
			j.findings = append(j.findings, c.point(h, WronglyDenied, d, d.units, least))
		}
	}
	for i := range h.readings {
		r := &h.readings[i]
		least, slack := there(r.span)
		if r.left+1 > least-slack { // whole units may be told
			continue
		}
		j.counts.WrongReadings++
		if j.first(ReadsTooLittle) {
			j.findings = append(j.findings, c.point(h, ReadsTooLittle, r.span, r.left, least))
		}
	}
}

// moments are all times at which more may be missing from a bucket than just before, and how much of its capacity may be missing then.
type moments struct {
	at   []int64
	tree []float64 // of the largest values, over at
	size int
}

// over is the most that may be missing at some time from start to end, of which start is one of the moments.
func (m *moments) over(start, end int64) float64 {
	low := sort.Search(len(m.at), func(i int) bool { return m.at[i] >= start })
	high := sort.Search(len(m.at), func(i int) bool { return m.at[i] > end })
	most := 0.0
	for l, r := low+m.size, high+m.size; l < r; l, r = l/2, r/2 {
		if l%2 == 1 {
			most = max(most, m.tree[l])
			l++
		}
		if r%2 == 1 {
			r--
			most = max(most, m.tree[r])
		}
	}
	return most
}

func newMoments(at []int64) *moments {
	size := 1
	for size < len(at) {
		size *= 2
	}
	return &moments{at: at, size: size, tree: make([]float64, 2*size)}
}

func (m *moments) fill(most func(at int64) float64) {
	for i, at := range m.at {
		m.tree[m.size+i] = most(at)
	}
	for i := m.size - 1; i > 0; i-- {
		m.tree[i] = max(m.tree[2*i], m.tree[2*i+1])
	}
}

// mostCharged finds out how much may be missing, whatever of all that may have been charged was, and whenever.
func (c *checker) mostCharged(h *history) *moments {
	var at []int64
	for _, spans := range [][]span{h.possible, h.held, h.denials} {
		for _, s := range spans {
			at = append(at, s.start)
		}
	}
	for _, r := range h.readings {
		at = append(at, r.start)
	}
	slices.Sort(at)
	m := newMoments(slices.Compact(at))
	held := newStanding(h.held, 0)
	if h.log() {
		longest := int64(float64(h.limits.Window)*1000*(1+c.Drift)) + int64(c.Step)
		entries := newStanding(h.possible, longest)
		m.fill(func(at int64) float64 { return entries.at(at) + held.at(at) })
		return m
	}
	missing := newMissing(h, h.rate()*(1-c.Drift))
	m.fill(func(at int64) float64 { return missing.at(at) + held.at(at) })
	return m
}

// standing adds up spans that have begun and not ended for longer than some time.
type standing struct {
	begin, end []span // the same, in the order of both
	stays      int64
	b, e       int
	units      float64
}

func newStanding(spans []span, stays int64) *standing {
	s := &standing{begin: slices.Clone(spans), end: slices.Clone(spans), stays: stays}
	slices.SortFunc(s.begin, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	slices.SortFunc(s.end, func(a, b span) int { return cmp.Compare(a.end, b.end) })
	return s
}

// at is the sum at a time, which is no earlier than that of the last call. What ends at it counts.
func (s *standing) at(time int64) float64 {
	for ; s.b < len(s.begin) && s.begin[s.b].start <= time; s.b++ {
		s.units += s.begin[s.b].units
	}
	for ; s.e < len(s.end) && s.end[s.e].end+s.stays < time; s.e++ {
		s.units -= s.end[s.e].units
	}
	return s.units
}

// missing is how much of a token bucket may be missing: the most that may have been charged in an interval up to now, beyond its refill.
type missing struct {
	possible []span // by end
	places   []int  // of possible, by start
	next     int    // of places
	ended    int    // of possible
	flying   *standing
	tree     *tree // places: possible
	rate     float64
}

func newMissing(h *history, rate float64) *missing {
	m := &missing{possible: h.possible, tree: newTree(len(h.possible)), rate: rate, flying: newStanding(h.possible, 0)}
	m.places = make([]int, len(h.possible))
	for i := range m.places {
		m.places[i] = i
	}
	slices.SortFunc(m.places, func(a, b int) int { return cmp.Compare(h.possible[a].start, h.possible[b].start) })
	return m
}

func (m *missing) at(time int64) float64 {
	for ; m.next < len(m.places) && m.possible[m.places[m.next]].start <= time; m.next++ {
		place := m.places[m.next]
		m.tree.add(place, m.possible[place].units)
	}
	for ; m.ended < len(m.possible) && m.possible[m.ended].end <= time; m.ended++ {
		m.tree.open(m.ended, m.rate*float64(m.possible[m.ended].end))
	}
	return math.Max(m.flying.at(time), m.tree.largest()-m.rate*float64(time))
}
