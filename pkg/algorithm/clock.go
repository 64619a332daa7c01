package algorithm

import "math"

// Never is the wait of a call that no passing of time would admit.
const Never = math.MaxInt64

// Clock is a bucket's own clock, which never runs backwards. The zero Clock has not started.
//
// The time that a store gives can step back: after a failover to a slower machine, or when somebody sets the wall
// clock. Without Clock the bucket would either stop refilling until the old time comes again, or be paid for the same
// stretch of time twice. Clock goes on from where it was, at the pace of the new time, and falls back into step as soon
// as the given time has caught up.
type Clock struct {
	// Last is what the clock showed at the last change of the bucket, in microseconds.
	Last int64
	// Offset is how far it was ahead of the store's time then, in microseconds. Never negative.
	Offset int64
}

// Now is what the clock shows at the store's time, in microseconds. It is never less than Last.
func (c Clock) Now(time int64) int64 {
	if time >= c.Last {
		return time
	}
	return max(c.Last, time+c.Offset)
}

// At is the clock after a change at the store's time.
func (c Clock) At(time int64) Clock {
	now := c.Now(time)
	return Clock{Last: now, Offset: now - time}
}

// Seen is the clock after a call at the store's time that changed nothing else. It is the same clock, unless time has
// stepped back: then the clock notes by how much. Without that a drained bucket would deny, and so stand still, until the
// old time comes again.
func (c Clock) Seen(time int64) Clock {
	if time+c.Offset < c.Last {
		c.Offset = c.Last - time
	}
	return c
}
