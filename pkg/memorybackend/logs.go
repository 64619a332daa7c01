package memorybackend

import "github.com/envoy-rls/envoy-rls/pkg/algorithm"

func (s *shard) newLogLocked() uint32 {
	if n := len(s.freeLogs); n > 0 {
		i := s.freeLogs[n-1]
		s.freeLogs = s.freeLogs[:n-1]
		return i
	}
	s.logs = append(s.logs, algorithm.Log{})
	return uint32(len(s.logs) - 1)
}

func (s *shard) freeLogLocked(i uint32) {
	s.runs.used.Add(int64(-s.logs[i].Room()))
	s.logs[i] = algorithm.Log{}
	s.freeLogs = append(s.freeLogs, i)
}

// addLocked adds entries to a log, with more room if it needs and may have some.
func (s *shard) addLocked(g *algorithm.Log, l *algorithm.Limits, count uint64, now int64) {
	g.Forget(*l, now)
	s.fitLocked(g, l, now)
	if g.Full(now) {
		s.joins++
	}
	g.Add(count, now)
}

// smallRing is up to how many runs a ring is never made smaller.
const smallRing = 16

// fitLocked gives a log a ring twice as big when it is full, and a small one again after a burst.
func (s *shard) fitLocked(g *algorithm.Log, l *algorithm.Limits, now int64) {
	room := g.Room()
	switch {
	case room == 0:
		// The first run is outside of the budget: without it there is no log. The number of buckets bounds these.
		s.runs.used.Add(1)
		g.Grow(make([]algorithm.Run, 1))
	case g.Full(now):
		want := int(min(float64(2*room), max(l.Capacity, float64(room+1))))
		if s.runs.reserve(want - room) {
			g.Grow(make([]algorithm.Run, want))
		}
	case room > smallRing && g.Runs()*8 < room:
		want := max(smallRing, 2*g.Runs())
		s.runs.used.Add(int64(want - room))
		g.Grow(make([]algorithm.Run, want))
	}
}
