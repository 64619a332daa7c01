package ratelimit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Options are what a Limiter is made of.
type Options struct {
	// Store keeps the buckets. Required.
	Store Store
	// Policies decide until Use replaces them. Default: none, which admits everything.
	Policies *policy.Set
	// OnDecision, if set, is told every decision before the caller is, also those that Commit and Cancel come to. It must not keep
	// the decision ([Decision.Clone] does), and costs every request what it takes.
	OnDecision func(*Decision)
}

// Limiter decides requests by a policy set that can be replaced at any time. It is safe for concurrent use.
type Limiter struct {
	store      Store
	start      time.Time
	onDecision func(*Decision)
	set        atomic.Pointer[policy.Set]
	calls      sync.Pool
	remainders remainders
}

// New makes a Limiter. It panics if o has no Store.
func New(o Options) *Limiter {
	if o.Store == nil {
		panic("ratelimit: Options.Store is required")
	}
	l := &Limiter{store: o.Store, start: time.Now(), onDecision: o.OnDecision, remainders: newRemainders()}
	if l.onDecision == nil {
		l.onDecision = func(*Decision) {}
	}
	l.calls.New = func() any { return &Call{limiter: l} }
	if o.Policies == nil {
		empty, err := policy.NewSet(nil)
		if err != nil {
			panic(err) // no files, no faults
		}
		o.Policies = empty
	}
	l.Use(o.Policies)
	return l
}

// Use makes set decide from the next request on. Requests under way keep the set they began with, and buckets keep their
// state.
func (l *Limiter) Use(set *policy.Set) { l.set.Store(set) }

// Set is the policy set in force.
func (l *Limiter) Set() *policy.Set { return l.set.Load() }

// Check decides a request, and charges its cost to every policy that applies if all of them have room. The error is nil or
// [ErrTooManyAttributes]: there is always a decision, since a store that cannot answer is answered for by each policy's
// onStoreFailure. When ctx ends before the store has answered, that counts as such a failure: see [Decision.Abandoned].
func (l *Limiter) Check(ctx context.Context, r Request) (Decision, error) {
	return l.decide(ctx, &r, spend)
}

// Peek tells what Check would say, and charges nothing. What it tells may have changed by the time of the Check: who wants to be
// sure calls Check at once. Under a postpaid policy it looks whether there is room for a cost of 1. Errors are as with Check.
func (l *Limiter) Peek(ctx context.Context, r Request) (Decision, error) {
	return l.decide(ctx, &r, look)
}

// Refund gives the cost of a request back to every policy that applies to it, because what a Check paid for did not happen. A
// bucket never gets fuller than full, and a sliding log loses its newest entries. Under prepaid policies, give back only what was charged:
// nobody checks. A refund is never denied, unless by a policy whose key the request lacks. Errors are as with Check.
func (l *Limiter) Refund(ctx context.Context, r Request) (Decision, error) {
	return l.decide(ctx, &r, giveBack)
}

// now is the time since the limiter was made. It takes half as long to tell as time.Now, which asks for the wall clock, too.
func (l *Limiter) now() time.Duration { return time.Since(l.start) }

func (l *Limiter) decide(ctx context.Context, r *Request, i intent) (Decision, error) {
	c, err := l.begin(r)
	if err != nil {
		return Decision{}, err
	}
	defer c.Release()
	return c.decide(ctx, i).Clone(), nil
}
