package faults

import (
	"errors"
	"fmt"
	"time"
)

// A check returns nil, or an error that says what is wrong.
//
// CheckInTime, CheckAlone and CheckUntouched are about time, and leave out when the machine itself stood still. On one that does so all the while
// ([Record.Stalled]) they can tell nothing. The others, about errors, missing answers and counts, excuse nothing.

// CheckAnswered checks that each of the calls made was answered, by a decision, none of them an error and none without a source.
func (r *Record) CheckAnswered() error {
	if len(r.Decisions) == 0 {
		return errors.New("nothing was asked")
	}
	failed, nameless := 0, 0
	var first error
	for i := range r.Decisions {
		switch d := &r.Decisions[i]; {
		case d.Err != nil:
			failed++
			if first == nil {
				first = fmt.Errorf("the first, due at %v on shard %d, after %v: %w", d.Due, d.Shard, d.Took, d.Err)
			}
		case !d.ByStore() && !d.ByMode():
			nameless++
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d calls failed; %w", failed, len(r.Decisions), first)
	}
	if nameless > 0 {
		return fmt.Errorf("%d of %d answers do not say who decided", nameless, len(r.Decisions))
	}
	return nil
}

// CheckModes checks that a failure mode that decided is the policy's own, and has done what it says: open admits, closed denies.
func (r *Record) CheckModes() error {
	for i := range r.Decisions {
		d := &r.Decisions[i]
		if d.ByMode() && (d.Source != d.Mode || d.Mode != "local" && d.Allowed != (d.Mode == "open")) {
			return fmt.Errorf("a call due at %v about a policy %s was decided by the mode %s: allowed %v", d.Due, d.Mode, d.Source, d.Allowed)
		}
	}
	return nil
}

const (
	// overTimeout is by how much 999 of 1,000 decisions may exceed the time that the store has.
	overTimeout = 50 * time.Millisecond
	// longest is what no decision may exceed.
	longest = 500 * time.Millisecond
)

// CheckInTime checks that 99.9 % of the decisions took no longer than the store's timeout and 50 ms, and none longer than 500 ms.
func (r *Record) CheckInTime(storeTimeout time.Duration) error {
	var times []time.Duration
	for i := range r.Decisions {
		times = append(times, r.net(&r.Decisions[i]))
	}
	if len(times) == 0 {
		return errors.New("nothing was asked")
	}
	if got := quantile(times, 1); got > longest {
		return fmt.Errorf("a decision took %v, want at most %v", got, longest)
	}
	if got := quantile(times, 0.999); got > storeTimeout+overTimeout {
		return fmt.Errorf("p99.9 is %v, want at most %v", got, storeTimeout+overTimeout)
	}
	return nil
}

// CheckTrace checks that the fault was felt: within the span some decision on the shard was a failure mode's.
func (r *Record) CheckTrace(s Span, shard int) error {
	if n := Count(r.Select(s, shard), (*Decision).ByMode); n == 0 {
		return fmt.Errorf("no failure mode decided on shard %d from %v to %v: the fault left no trace", shard, s.From, s.To)
	}
	return nil
}

// CheckAgain checks that the store decides on the shard again after it can, allowing it a while.
func (r *Record) CheckAgain(can time.Duration, shard int, while time.Duration) error {
	after := r.Select(Span{can + while, 1 << 62}, shard)
	if len(after) == 0 {
		return fmt.Errorf("nothing was asked about shard %d later than %v after it could decide", shard, while)
	}
	if Count(after, (*Decision).ByStore) == 0 {
		return fmt.Errorf("the store decided nothing on shard %d later than %v after it could", shard, while)
	}
	return nil
}

// few is how many decisions can miss the store's timeout by chance on a shared machine, of which the witness does not see all.
const few = 5

// CheckAlone checks that the store decides on the shard alone, but for 1 % of the decisions or a few, a while after it can.
func (r *Record) CheckAlone(can time.Duration, shard int, while time.Duration) error {
	after := r.Select(Span{can + while, 1 << 62}, shard)
	others := Count(after, func(d *Decision) bool { return !d.ByStore() && !r.disturbed(d) })
	if others > max(few, len(after)/100) {
		return fmt.Errorf("on shard %d, the store did not make %d of %d decisions later than %v after it could", shard, others, len(after), while)
	}
	return nil
}

// Again is how long after a time the store's first decision on the shard came of a run of a hundred that are its own; negative: none did.
func (r *Record) Again(can time.Duration, shard int) time.Duration {
	const enough = 100
	run, first := 0, time.Duration(0)
	for _, d := range r.Select(Span{can, 1 << 62}, shard) {
		switch {
		case d.ByMode() && !r.disturbed(d):
			run = 0
		case d.ByStore():
			if run == 0 {
				first = d.Due
			}
			if run++; run == enough {
				return first - can
			}
		}
	}
	return -1
}

// hiccup is for how long a shared machine may stand still in a span without the witness seeing it: of a short span that is more than a hundredth.
const hiccup = 20 * time.Millisecond

// CheckUntouched checks that a fault elsewhere was not felt on healthy shards: within the span the store made 99 % of the decisions, or all but a few, and
// as many, or all but those of one hiccup, took at most 5 ms longer than 99 % of those before it, on the same shards.
func (r *Record) CheckUntouched(s Span, healthy ...int) error {
	const slower = 5 * time.Millisecond
	before, during := r.Select(Span{0, s.From}, healthy...), r.Select(s, healthy...)
	if len(before) == 0 || len(during) == 0 {
		return errors.New("nothing was asked about healthy shards before or while others were in trouble")
	}
	touched := Count(during, func(d *Decision) bool { return !d.ByStore() && !r.disturbed(d) })
	if touched > max(few, len(during)/100) {
		return fmt.Errorf("failure modes made %d of %d decisions on healthy shards", touched, len(during))
	}
	was, is := quantile(r.nets(before), 0.99), quantile(r.nets(during), max(0, min(0.99, 1-few/float64(len(during)), 1-float64(hiccup)/float64(s.To-s.From))))
	if is > was+slower {
		return fmt.Errorf("p99 on healthy shards is %v, was %v", is, was)
	}
	return nil
}

func (r *Record) nets(of []*Decision) []time.Duration {
	times := make([]time.Duration, len(of))
	for i, d := range of {
		times[i] = r.net(d)
	}
	return times
}
