package fallback

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// State is that of a shard's breaker.
type State uint8

// The states.
const (
	// StateClosed: calls go to the shard.
	StateClosed State = iota + 1
	// StateOpen: none do.
	StateOpen
	// StateHalfOpen: one call is on its way to see whether the shard is back.
	StateHalfOpen
)

// String is the state as it appears in metrics and pages.
func (s State) String() string {
	switch s {
	case StateClosed:
		return "closed"
	case StateOpen:
		return "open"
	case StateHalfOpen:
		return "half-open"
	}
	return ""
}

// Transition is a change of a breaker's state.
type Transition struct {
	Shard    string
	From, To State
	// Reason is that of the last fault, or ReasonGone.
	Reason string
	// After is, for one that closed, how long calls had been kept back.
	After time.Duration
	// Next is, for one that opened, how long until a call is let through again.
	Next time.Duration
}

// ReasonGone is why the breaker of a shard was dropped that has the buckets no more which failed.
const ReasonGone = "gone"

const (
	opensAfter   = 3 // failures in a row
	firstBackoff = 20 * time.Millisecond
	longBackoff  = 500 * time.Millisecond // at most
)

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// breaker keeps calls from a shard that fails. All times are since the shards were made; those of calls are when they were sent, so that
// what is learnt late of an old call does not count against what is known of a newer one.
type breaker struct {
	shard string
	tell  func(Transition)
	// until is how long no call is let through: 0 if any is, never while one is on its way.
	until atomic.Int64

	mu      sync.Mutex // guards what follows
	state   State
	fails   int // in a row
	backoff time.Duration
	reason  string        // of the last failure
	since   time.Duration // of the state
	touched time.Duration // by the last failure, or the transition after it
	lastBad time.Duration // when the newest call was sent that failed …
	lastOK  time.Duration // … and that did not
	deaf    time.Duration // until then late answers count for nothing
	witness []byte        // the key of a bucket that failed
	dropped bool          // nobody else knows it any more
}

func newBreaker(shard string, tell func(Transition)) *breaker {
	return &breaker{shard: shard, tell: tell, state: StateClosed, lastOK: -1, lastBad: -1}
}

// admit says whether a call may be sent, whether it is the one that finds out, and else how long it is until the next one that does.
func (b *breaker) admit(now time.Duration) (through, probe bool, wait time.Duration) {
	switch until := time.Duration(b.until.Load()); {
	case until == 0:
		return true, false, 0
	case until == never:
		return false, false, longBackoff
	case now < until:
		return false, false, until - now
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch b.state {
	case StateClosed:
		return true, false, 0
	case StateHalfOpen:
		return false, false, longBackoff
	}
	b.changeLocked(StateHalfOpen, now, never)
	return true, true, 0
}

// failed notes that a call failed.
func (b *breaker) failed(sent, now time.Duration, probe bool, reason string, key []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped || sent < b.lastOK && !probe {
		return
	}
	b.lastBad, b.reason, b.touched = max(b.lastBad, sent), reason, now
	b.witness = append(b.witness[:0], key...)
	switch {
	case b.state == StateClosed:
		if b.fails++; b.fails >= opensAfter {
			b.openLocked(now, firstBackoff)
		}
	case b.state == StateHalfOpen && probe:
		b.openLocked(now, min(2*b.backoff, longBackoff))
	}
}

// worked notes that a call was answered.
func (b *breaker) worked(sent, now time.Duration, probe bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dropped || sent < b.lastBad && !probe {
		return
	}
	b.lastOK, b.fails = max(b.lastOK, sent), 0
	if b.state != StateClosed {
		b.touched = now
		b.changeLocked(StateClosed, now, 0)
	}
}

// unknown notes that a probe told nothing: the next call is one, too.
func (b *breaker) unknown(now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.dropped && b.state == StateHalfOpen {
		b.changeLocked(StateOpen, now, max(now, 1))
	}
}

// heard notes that the shard has answered, too late for the call: the next one finds out whether it is back. Not every time, or one that is merely
// slow would be asked all the time.
func (b *breaker) heard(now time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.state == StateOpen && now >= b.deaf {
		b.deaf = now + longBackoff/2
		b.until.Store(int64(max(now, 1)))
	}
}

func (b *breaker) openLocked(now, backoff time.Duration) {
	b.backoff = backoff
	b.changeLocked(StateOpen, now, now+backoff/2+rand.N(backoff/2+1)) // lest all instances come at once
}

func (b *breaker) changeLocked(to State, now, until time.Duration) {
	t := Transition{Shard: b.shard, From: b.state, To: to, Reason: b.reason}
	if to == StateOpen {
		t.Next = until - now
	}
	if to == StateClosed {
		t.After = now - b.since
	}
	if b.state == StateClosed || to == StateClosed {
		b.since = now
	}
	b.state = to
	b.until.Store(int64(until))
	b.tell(t)
}

// dropLocked makes the breaker one that nobody knows any more, since its shard is gone.
func (b *breaker) dropLocked(now time.Duration) {
	b.dropped = true
	if b.state != StateClosed {
		b.reason = ReasonGone
		b.changeLocked(StateClosed, now, 0)
	}
}
