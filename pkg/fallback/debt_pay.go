package fallback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// ErrOwed is why a bucket was not decided by the store, although that may answer again.
var ErrOwed = errors.New("the store has not been charged yet for what was admitted while it failed")

const (
	payBatch = 64                     // debts that are paid in one go …
	payPause = 10 * time.Millisecond  // … with so much time in between,
	payEvery = 250 * time.Millisecond // and again so long after the last look at all of them
	payClose = time.Second            // how long to go on at the end
)

// payment is debts that are paid together.
type payment struct {
	claims  []claim
	buckets []ratelimit.Bucket
	results []ratelimit.Result
}

func (p *payment) add(c claim) {
	p.claims, p.buckets = append(p.claims, c), append(p.buckets, c.bucket)
}

// acquire asks the store, in one way or another.
type acquire func(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result

// pay has the store charged. It reports whether all was. patient: no caller waits for it, so that an error which is no trouble is
// about the bucket.
func (l *local) pay(ctx context.Context, p *payment, store acquire, patient bool) bool {
	if len(p.claims) == 0 {
		return true
	}
	p.results = store(ctx, p.buckets, p.results)
	all := true
	for j := range p.claims {
		c, r := &p.claims[j], &p.results[j]
		all = all && r.Err == nil
		if r.Err == nil {
			l.seen.note(c.id, r.Remaining, l.now())
		}
		l.debts.settle(c, l.outcomeOf(r.Err, patient))
	}
	return all
}

func (l *local) outcomeOf(err error, patient bool) outcome {
	switch {
	case err == nil:
		return ran
	case errors.Is(err, ErrOpen):
		return notRun
	}
	switch fault := l.classify(err); {
	case fault.MayHaveRun:
		return mayHaveRun
	case patient && !fault.Trouble:
		return refused
	}
	return notRun
}

// payer pays what is owed for buckets that nobody calls. It runs while there are debts.
type payer struct {
	mu      sync.Mutex // guards what follows
	running bool
	closed  bool
	stop    context.CancelFunc
	done    sync.WaitGroup
}

// wake has the payer run. It is called when there is a debt where there was none.
func (l *local) wake() {
	p := &l.payer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running || p.closed {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	p.running, p.stop = true, stop
	p.done.Go(func() {
		defer stop()
		l.payAll(ctx)
	})
}

// close pays what can be paid in a second, and waits for it. What is left then is lost.
func (l *local) close() {
	p := &l.payer
	p.mu.Lock()
	p.closed = true
	if p.stop != nil {
		p.stop()
	}
	p.mu.Unlock()
	p.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), payClose)
	defer cancel()
	l.payRound(ctx, 0)
	l.debts.drop()
}

// payAll looks at all debts again and again until there are none, or ctx ends.
func (l *local) payAll(ctx context.Context) {
	for l.more() {
		if !rest(ctx, payEvery) || !l.payRound(ctx, payPause) {
			return
		}
	}
}

// more reports whether there are debts, and else ends the payer's run.
func (l *local) more() bool {
	p := &l.payer
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = l.debts.count.Load() > 0
	return p.running
}

// payRound pays all debts that can be paid. It returns false if ctx ended before.
func (l *local) payRound(ctx context.Context, pause time.Duration) bool {
	for i := range l.debts.stripes {
		for more := true; more; {
			p, due := l.gather(&l.debts.stripes[i])
			more = len(p.claims) == payBatch || due.Op != 0 && l.look(ctx, due)
			if len(p.claims) == 0 {
				continue
			}
			if !l.pay(ctx, &p, l.charge, true) {
				more = false // again in the next round
			}
			if !rest(ctx, pause) {
				return false
			}
		}
	}
	return ctx.Err() == nil
}

// look asks a store whether it answers, and reports whether more is known then.
func (l *local) look(ctx context.Context, due ratelimit.Bucket) bool {
	l.charge(ctx, []ratelimit.Bucket{due}, nil)
	return ctx.Err() == nil && l.condition(due.Key.Bytes()) != askAgain
}

// gather claims some debts of buckets whose store answers, after a look at no more than some whose store does not. due looks at one whose
// store should be asked whether it does: a debt that is sent to a store which does not may be lost.
func (l *local) gather(s *debtStripe) (p payment, due ratelimit.Bucket) {
	now := l.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	misses := 0
	for id, e := range s.owed {
		if len(p.claims) == payBatch || misses == payBatch {
			break
		}
		if e.done != nil {
			continue
		}
		switch l.condition(e.key.Bytes()) {
		case answers:
			if c, mine, _ := l.debts.claimLocked(s, id, e, now); mine {
				p.add(c)
			}
		case askAgain:
			if due.Op == 0 {
				due = e.bucket(ratelimit.Peek, 1)
			}
		default:
			misses++
		}
	}
	return p, due
}

// condition is what is known of the store of a bucket.
type condition uint8

const (
	fails condition = iota + 1
	askAgain
	answers
)

// drop gives up all debts, and those to come.
func (d *debts) drop() {
	d.closed.Store(true)
	for i := range d.stripes {
		s := &d.stripes[i]
		s.mu.Lock()
		for id, e := range s.owed {
			d.dropped.Add(e.amount - e.sending)
			if e.amount = e.sending; e.amount == 0 {
				d.removeLocked(s, id)
			}
		}
		s.mu.Unlock()
	}
}

// rest reports whether the context still holds after so long.
func rest(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
