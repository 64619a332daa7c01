package algorithm

import "math"

// EntriesFor is how many entries a log under limits l starts with, when the same bucket has been the token bucket s
// under the limits old until now: the share that was spent stays spent, rounded up.
func (s Tokens) EntriesFor(l, old Limits, time int64) uint64 {
	if old.Capacity <= 0 {
		return 0
	}
	spent := old.Capacity - s.Remaining(old, time)
	entries := math.Ceil(float64(l.Capacity*spent) / old.Capacity)
	return uint64(min(max(entries, 0), l.Capacity))
}

// TokensFor is the state that a token bucket under limits l starts with, when the same bucket has been the log g under
// the limits old until now: the share that was spent stays spent, rounded up.
func (g *Log) TokensFor(l, old Limits, time int64) Tokens {
	level := l.Capacity
	if old.Capacity > 0 {
		left := float64(g.Remaining(old, time))
		level = min(level, math.Floor(float64(l.Capacity*left)/old.Capacity))
	}
	return Tokens{Level: level, Clock: g.At(time)}
}
