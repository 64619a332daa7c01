package ratelimit

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Reservation is an estimate that was charged before the actual cost is known, as with the tokens of a language model. It is safe
// for concurrent use.
type Reservation struct {
	// Decision says whether there was room for the estimate. If it is not Allowed, nothing is reserved.
	Decision Decision

	limiter *Limiter
	request Request
	holds   []charge
	began   time.Duration // by the limiter's clock
	settled atomic.Bool
}

// charge is what a reservation has done to one bucket.
type charge struct {
	key    policy.Key
	cost   uint64 // 0: the bucket could not be asked
	source Source
	before float64
	at     int64
}

// Reserve charges r.Cost, an estimate of what a request will cost, to every policy that applies, postpaid ones included, if all
// of them have room. Whoever is admitted does what it wanted, and then calls Commit with what it took, or Cancel if it came to
// nothing. A reservation that is abandoned stays charged.
//
// Only token buckets can be reserved from: an enforced sliding-log policy that applies is ErrNotReservable, which names it, and a
// shadow one is passed over. The only other error is ErrTooManyAttributes.
//
// It is carried out even if ctx has ended, as Commit is: who hangs up before the store has counted must not get more done for it.
func (l *Limiter) Reserve(ctx context.Context, r Request) (*Reservation, error) {
	began := l.now()
	c, err := l.begin(&r)
	if err != nil {
		return nil, err
	}
	defer c.Release()
	c.match(hold)
	if err := c.reservable(); err != nil {
		return nil, err
	}
	c.ask(context.WithoutCancel(ctx))
	r.Attributes = maps.Clone(r.Attributes)
	res := &Reservation{Decision: c.conclude(began).Clone(), limiter: l, request: r, began: began}
	if res.Decision.Allowed {
		res.holds = c.charges()
	}
	return res, nil
}

// Commit replaces the estimate by the actual cost: it gives back what was too much, and charges what was too little, if need be into
// debt of as much as the policy's overdraft (none under a prepaid policy). What found no room even so is told by
// [Decision.Uncharged]. The decision has a check for each bucket that changed. A bucket that could not be asked for the estimate
// is charged the whole cost now.
//
// Reservations under way at the same time may be settled in any order: what one finds no room for is charged after all when another of this
// Limiter that was open then gives back, whose decision tells so by [Decision.MadeUp].
//
// Policies may have changed meanwhile: the same bucket is settled by the numbers in force now, and where there is no policy
// for it any more, or a sliding log, nothing is done. What a store that fails now should give back stays charged.
//
// It is carried out even if ctx has ended: a client that hangs up pays all the same. How long it takes is up to the store, as with
// redisbackend.Options.Timeout. The error is ErrNotReserved, or ErrSettled on every call but the first.
func (r *Reservation) Commit(ctx context.Context, actual uint64) (Decision, error) {
	if !r.Decision.Allowed {
		return Decision{}, ErrNotReserved
	}
	if r.settled.Swap(true) {
		return Decision{}, ErrSettled
	}
	began := r.limiter.now()
	c, err := r.limiter.begin(&r.request)
	if err != nil {
		return Decision{}, err // not reached: it was checked when reserving
	}
	defer c.Release()
	c.settle(r.holds, actual)
	c.balance(context.WithoutCancel(ctx), r.began)
	return c.conclude(began).Clone(), nil
}

// Cancel gives the whole estimate back, even if ctx has ended: what it was for did not happen. It does nothing if the reservation was
// denied, or is settled already, so that it can be deferred.
func (r *Reservation) Cancel(ctx context.Context) {
	_, _ = r.Commit(ctx, 0)
}

// reservable says why the call cannot be a reservation, and drops the shadow policies that cannot.
func (c *Call) reservable() error {
	for i := range c.decision.Checks {
		if check := &c.decision.Checks[i]; !check.Shadow() && check.Numbers.Kind != algorithm.TokenBucket {
			return fmt.Errorf("policy %q is a sliding log: %w", check.Policy.ID, ErrNotReservable)
		}
	}
	c.keep(func(b *Bucket) bool { return b.Limits.Kind == algorithm.TokenBucket })
	return nil
}

// charges are what the decided call has done to its buckets.
func (c *Call) charges() []charge {
	holds := make([]charge, 0, len(c.buckets))
	for i := range c.buckets {
		b, check := &c.buckets[i], &c.decision.Checks[c.places[i]]
		if check.Denied() {
			continue // a shadow
		}
		h := charge{key: b.Key.Clone(), source: check.Result.Source, before: check.Result.Before, at: check.Result.At}
		onlyLookedAt := check.Shadow() && h.source == FromStore && h.at == 0
		if check.Known && !onlyLookedAt {
			h.cost = b.Cost
		}
		holds = append(holds, h)
	}
	return holds
}

// settle plans what makes the charges the actual cost.
func (c *Call) settle(holds []charge, actual uint64) {
	c.hits = c.attributes.Match(c.hits[:0])
	for i := range c.hits {
		hit := &c.hits[i]
		h := find(holds, hit.Key)
		if h == nil || h.cost == actual || hit.Numbers.Kind != algorithm.TokenBucket {
			continue
		}
		check := Check{Policy: hit.Policy, Numbers: hit.Numbers, Groups: hit.Groups}
		check.Op, check.Cost = h.difference(actual)
		if check.Op == Refund && hit.Policy.NoReconcile {
			continue // the store has never been charged the estimate
		}
		c.addBucket(hit, &check)
		b := &c.buckets[len(c.buckets)-1]
		b.Before, b.At = h.before-float64(actual), h.at
		c.decision.Checks = append(c.decision.Checks, check)
	}
}

func find(holds []charge, key policy.Key) *charge {
	for i := range holds {
		if bytes.Equal(holds[i].key.Bytes(), key.Bytes()) {
			return &holds[i]
		}
	}
	return nil
}

// difference says how the charge becomes actual. An Undo of the part that was too much is as if only actual had been taken in the
// first place, even where the bucket has been full meanwhile; a Refund, where another store than the one in charge now has counted, is
// but clamped.
func (h *charge) difference(actual uint64) (Op, uint64) {
	switch {
	case actual > h.cost:
		return Force, actual - h.cost
	case h.source == FromStore:
		return Undo, h.cost - actual
	}
	return Refund, h.cost - actual
}
