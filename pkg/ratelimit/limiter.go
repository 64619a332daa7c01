// Package ratelimit is the front door of the limiter: it decides whether a request may pass.
//
// A [Limiter] holds the current policy set and a [Store] of buckets. For each request a caller takes a [Request], adds what is
// known about it as attributes, and gets a [Decision]. A denial is a value, never an error.
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
	// OnDecision, if set, is told every decision before the caller is. It must not keep the decision, and costs every request
	// what it takes.
	OnDecision func(*Decision)
}

// Limiter decides requests by a policy set that can be replaced at any time. It is safe for concurrent use.
type Limiter struct {
	store      Store
	onDecision func(*Decision)
	set        atomic.Pointer[policy.Set]
	requests   sync.Pool
}

// New makes a Limiter without policies, which admits everything until Use is called.
func New(o Options) *Limiter {
	l := &Limiter{store: o.Store, onDecision: o.OnDecision}
	if l.onDecision == nil {
		l.onDecision = func(*Decision) {}
	}
	l.requests.New = func() any { return &Request{limiter: l} }
	empty, err := policy.NewSet(nil)
	if err != nil {
		panic(err) // no files, no faults
	}
	l.Use(empty)
	return l
}

// Use makes set decide from the next request on. Requests under way keep the set they began with, and buckets keep their
// state.
func (l *Limiter) Use(set *policy.Set) { l.set.Store(set) }

// Set is the policy set in force.
func (l *Limiter) Set() *policy.Set { return l.set.Load() }

// Begin starts a request in domain, under the set in force now. The caller must Release it.
func (l *Limiter) Begin(domain []byte) *Request {
	r := l.requests.Get().(*Request)
	r.reset(l.set.Load().View(domain))
	return r
}

// Check decides a request. It is called once per request; the decision is valid until the request is released. A store
// that cannot answer is answered for by each policy's onStoreFailure, so that there is always a decision.
func (l *Limiter) Check(ctx context.Context, r *Request) *Decision {
	began := time.Now()
	d := &r.decision
	r.hits = r.attributes.Match(r.hits[:0])
	final := r.plan()
	if final {
		r.dropTakes()
	}
	if len(r.buckets) > 0 {
		r.results = l.store.Acquire(ctx, r.buckets, r.results[:0])
		r.collect()
	}
	for i := range d.Checks {
		if c := &d.Checks[i]; c.Denied() && !c.Shadow() {
			d.Allowed = false
		}
	}
	d.InvalidIPs = r.attributes.InvalidIPs
	d.Took = time.Since(began)
	l.onDecision(d)
	return d
}
