package algorithm

import "math"

// Tokens is the state of a token bucket: it holds up to Limits.Capacity tokens, refills continuously at Limits.Rate, and
// a call takes as many tokens as it costs or is denied. It is a value; every method leaves it alone and returns what
// it becomes.
//
// The methods take the limits in force at the time of the call. When they differ from those of the last call, the
// state carries over: a lower capacity clamps, a higher one adds nothing, and the time since the last change is credited
// at the rate in force now.
type Tokens struct {
	// Level is how many tokens the bucket held at Clock.Last. Negative when it is in debt.
	Level float64
	Clock
}

// NewTokens is a full bucket.
func NewTokens(l Limits, time int64) Tokens {
	return Tokens{Level: l.Capacity, Clock: Clock{Last: time}}
}

// Remaining is how many tokens the bucket holds at time.
func (s Tokens) Remaining(l Limits, time int64) float64 {
	return s.after(l, s.Now(time)-s.Last)
}

// after is the level when elapsed microseconds have passed since the last change. The conversion around the product
// forbids fusing it with the sum, so that every machine, and the script in the store, gets the same bits.
func (s Tokens) after(l Limits, elapsed int64) float64 {
	return min(l.Capacity, s.Level+float64(float64(elapsed)*l.Rate))
}

// Take spends cost tokens if the bucket holds them, else returns false and the state as it was, but for a step back of
// the clock ([Clock.Seen]).
func (s Tokens) Take(l Limits, cost uint64, time int64) (Tokens, bool) {
	have := s.Remaining(l, time)
	if have < float64(cost) {
		s.Clock = s.Seen(time)
		return s, false
	}
	return Tokens{Level: have - float64(cost), Clock: s.At(time)}, true
}

// Wait is how many microseconds after time a Take of cost is admitted if nobody else calls: at that time it is, one
// microsecond earlier it is not. Zero if it is admitted at once, Never if the bucket never holds so much.
func (s Tokens) Wait(l Limits, cost uint64, time int64) int64 {
	need := float64(cost)
	passed := s.Now(time) - s.Last
	switch {
	case s.after(l, passed) >= need:
		return 0
	case need > l.Capacity || l.Rate <= 0:
		return Never
	}
	guess := math.Ceil((need - s.Level) / l.Rate)
	if guess >= 1<<62 {
		return Never
	}
	return s.firstAfter(l, need, int64(guess)) - passed
}

// firstAfter is the smallest elapsed time at which the level reaches need. The guess is right or a step off as a rule;
// where a microsecond's refill is less than the level can resolve, it can be off by more, hence the doubling steps.
func (s Tokens) firstAfter(l Limits, need float64, guess int64) int64 {
	low, high := guess-1, guess // wanted: not reached at low, reached at high
	for step := int64(1); s.after(l, high) < need; step *= 2 {
		low, high = high, high+step
	}
	for step := int64(1); low >= 0 && s.after(l, low) >= need; step *= 2 {
		low, high = low-step, low
	}
	for high-low > 1 {
		if mid := low + (high-low)/2; s.after(l, mid) >= need {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// Undo gives back a Take of cost whose sibling was denied. before is what the bucket held before that Take and at the
// time of it, by the bucket's clock. What would have run over the brim meanwhile had there been no Take is not
// given back, since it was refilled into the room that the Take made. l are the limits of the Take.
func (s Tokens) Undo(l Limits, cost uint64, before float64, at, time int64) Tokens {
	held := max(0, s.Now(time)-at)
	spilled := before + float64(float64(held)*l.Rate) - l.Capacity
	give := float64(cost) - min(max(spilled, 0), float64(cost))
	return s.add(l, give, time)
}

// Refund gives cost tokens back, never above capacity.
func (s Tokens) Refund(l Limits, cost uint64, time int64) Tokens {
	return s.add(l, float64(cost), time)
}

func (s Tokens) add(l Limits, tokens float64, time int64) Tokens {
	return Tokens{Level: min(l.Capacity, s.Remaining(l, time)+tokens), Clock: s.At(time)}
}

// Force charges cost even where there is not enough, in whole tokens and never below -overdraft, and returns how
// much of cost found no room.
func (s Tokens) Force(l Limits, cost uint64, overdraft float64, time int64) (Tokens, uint64) {
	have := s.Remaining(l, time)
	room := math.Floor(have + overdraft)
	if room < 1 {
		s.Clock = s.Seen(time)
		return s, cost
	}
	charged := cost
	if float64(cost) > room {
		charged = uint64(room)
	}
	return Tokens{Level: have - float64(charged), Clock: s.At(time)}, cost - charged
}

// FullIn is how many microseconds after time the bucket is full again, after which it need not be remembered. Zero if it
// is full, Never if it does not refill.
func (s Tokens) FullIn(l Limits, time int64) int64 {
	return s.Wait(l, uint64(l.Capacity), time)
}
