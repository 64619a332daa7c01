package fallback

import (
	"context"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// owing is what stands between a bucket and a decision by the store.
type owing uint8

const (
	// paid: nothing.
	paid owing = iota + 1
	// unpaid: the store has not been charged what it missed. The bucket's result says why.
	unpaid
	// looked: as unpaid, but a look at the bucket finds out whether the store is back.
	looked
)

// owes is paid if nobody has asked.
func (t *trip) owes(i int) owing {
	if len(t.owing) == 0 {
		return paid
	}
	return t.owing[i]
}

// round is what is found out at once about the debts of a call.
type round struct {
	mine payment
	at   []int // whose debts are in mine

	waits   []<-chan struct{} // until somebody else has paid …
	waiting []int             // … for those
}

// payFirst has the store charged what it missed of the call's buckets. Where somebody else is at it already, it waits for that. The context
// is for the rest of the call.
func (t *trip) payFirst(ctx context.Context) (context.Context, context.CancelFunc) {
	cancel := func() {}
	if !t.store.local.owes() {
		return ctx, cancel
	}
	t.owing, t.toPay = append(t.owing, make([]owing, len(t.buckets))...), t.toPay[:0]
	for i := range t.buckets {
		if t.owing[i] = paid; t.shards[t.shardOf[i]].through {
			t.toPay = append(t.toPay, i)
		}
	}
	bounded := t.store.options.Timeout <= 0
	for len(t.toPay) > 0 {
		r := t.claim()
		if len(r.at)+len(r.waiting) == 0 {
			break
		}
		if !bounded {
			bounded = true
			ctx, cancel = context.WithTimeout(ctx, t.store.options.Timeout)
		}
		t.pay(ctx, &r)
	}
	for _, state := range t.owing {
		if state != paid {
			t.withheld++
		}
	}
	return ctx, cancel
}

// claim finds out what is owed for the buckets in toPay, and takes on what nobody else is paying.
func (t *trip) claim() (r round) {
	l := t.store.local
	now := l.now()
	for _, i := range t.toPay {
		c, state, wait := l.claim(&t.buckets[i], now, t.shards[t.shardOf[i]].breaker.sound())
		t.owing[i] = state
		switch {
		case wait != nil:
			r.waiting, r.waits = append(r.waiting, i), append(r.waits, wait)
		case state == unpaid:
			r.mine.add(c)
			r.at = append(r.at, i)
		}
	}
	return r
}

// pay pays what was taken on, and leaves in toPay those buckets for which somebody else has paid: there may be new debts.
func (t *trip) pay(ctx context.Context, r *round) {
	t.store.local.pay(ctx, &r.mine, t.store.options.Store.Acquire, false)
	for j, i := range r.at {
		if err := r.mine.results[j].Err; err != nil {
			t.results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: err}
			continue
		}
		t.owing[i] = paid
	}
	t.toPay = t.toPay[:0]
	for j, i := range r.waiting {
		select {
		case <-ctx.Done():
			t.results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: ErrOwed}
		case <-r.waits[j]:
			t.toPay = append(t.toPay, i)
		}
	}
}

// hold keeps from the caller what the store said about buckets that it was only asked to look at.
func (t *trip) hold() {
	for i := range t.owing {
		if t.owing[i] == looked && t.results[i].Err == nil {
			t.results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: ErrOwed}
		}
	}
}

// owes reports whether anything is owed to the store.
func (l *local) owes() bool { return l.debts.count.Load() > 0 }

// claim takes on what is owed for a bucket: then it is unpaid and wait is nil. If somebody else is paying, it is unpaid and wait is closed
// when that is over. A store that is not sound is looked at first: what is sent to one that fails may be lost.
func (l *local) claim(b *ratelimit.Bucket, now int64, sound bool) (c claim, state owing, wait <-chan struct{}) {
	id := l.ids.Identify(b.Key.Bytes())
	s := l.debts.stripe(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.owed[id]
	switch {
	case e == nil:
		return c, paid, nil
	case !sound:
		return c, looked, nil
	}
	c, mine, wait := l.debts.claimLocked(s, id, e, now)
	if mine || wait != nil {
		return c, unpaid, wait
	}
	return c, paid, nil
}

// charge asks the store in the background, as far as its breakers let it.
func (s *Store) charge(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if cap(results) < len(buckets) {
		results = make([]ratelimit.Result, len(buckets))
	}
	t := s.trips.Get().(*trip)
	t.begin(s, buckets, results[:len(buckets)])
	sent := s.shards.now()
	t.ask(sent)
	t.send(ctx)
	t.record(sent)
	results = t.results
	t.end()
	return results
}

// condition is that of a bucket's shard.
func (s *Store) condition(key []byte) condition {
	b := s.shards.find(s.options.Shard(key))
	if b.sound() {
		return answers
	}
	if time.Duration(b.until.Load()) <= s.shards.now() {
		return askAgain
	}
	return fails
}

// sound reports that the shard's last call has not failed. A nil breaker is one of a shard that has not failed lately.
func (b *breaker) sound() bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state == StateClosed && b.fails == 0
}
