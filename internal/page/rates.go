package page

import (
	"cmp"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// smoothing is what a new second counts in a policy's rates: they follow a change within some five seconds.
const smoothing = 0.25

// PolicyRates are how often a policy says what, each second.
type PolicyRates struct {
	Policy     string  `json:"policy"`
	Shadow     bool    `json:"shadow,omitempty"`
	Numbers    string  `json:"numbers"` // as a policy file has them
	Allowed    float64 `json:"allowed"`
	Denied     float64 `json:"denied"`
	WouldAllow float64 `json:"wouldAllow"`
	WouldDeny  float64 `json:"wouldDeny"`
	// Unanswered are those decided by the policy's onStoreFailure.
	Unanswered float64 `json:"unanswered"`
	Failure    string  `json:"onStoreFailure"`

	counted metrics.Counts
	place   int
}

// Busy is how many calls the policy has a say in.
func (p *PolicyRates) Busy() float64 { return p.Allowed + p.Denied + p.WouldAllow + p.WouldDeny }

// DeniedShare is the part of its calls that the policy denies, or would.
func (p *PolicyRates) DeniedShare() float64 {
	if p.Busy() == 0 {
		return 0
	}
	return (p.Denied + p.WouldDeny) / p.Busy()
}

// second is what happened in one second.
type second struct {
	at                         time.Time
	allowed, denied, wouldDeny float64 // requests, and what policies in shadow mode would deny; per second
	bySource                   [sources]float64
	decision, store            Latency
}

const sources = len(metrics.Counts{}.BySource)

// unanswered is the part of the decisions of enforced policies that the store did not make.
func (s *second) unanswered() (lost, all float64) {
	for _, n := range s.bySource {
		all += n
	}
	return s.bySource[ratelimit.FromLocal] + s.bySource[ratelimit.FromOpen] + s.bySource[ratelimit.FromClosed], all
}

// rates follow the counters.
type rates struct {
	policies        map[string]*PolicyRates
	allowed, denied uint64
	decision, store recent
	scratch         []metrics.Counts
	at              time.Time
}

// read takes the counters as they are now. The first time gives nothing.
func (r *rates) read(p *Page, now time.Time) (s second, ok bool) {
	elapsed := now.Sub(r.at).Seconds()
	ok = !r.at.IsZero() && elapsed > 0
	s = second{at: now, decision: r.decision.since(&p.decisions), store: r.store.since(&p.storeCalls)}
	perSecond := func(before *uint64, count uint64) float64 {
		n := count - *before
		*before = count
		return float64(n) / max(elapsed, 1e-3)
	}
	s.allowed, s.denied = perSecond(&r.allowed, p.allowed.Load()), perSecond(&r.denied, p.denied.Load())
	r.at = now
	r.scratch = p.opts.Counts(r.scratch[:0])
	known := r.policies
	r.policies = make(map[string]*PolicyRates, len(r.scratch))
	for i := range r.scratch {
		r.policy(&s, known, i, elapsed)
	}
	return s, ok
}

// policy follows the counters of the i-th policy.
func (r *rates) policy(s *second, known map[string]*PolicyRates, i int, elapsed float64) {
	now := &r.scratch[i]
	p := known[now.Policy]
	if p == nil { // what it counted before is no rate
		p = &PolicyRates{Policy: now.Policy, counted: *now}
	}
	rate := func(before, count uint64) float64 {
		if count < before { // the policy went and came again
			return 0
		}
		return float64(count-before) / max(elapsed, 1e-3)
	}
	smooth := func(to *float64, rate float64) {
		if *to += smoothing * (rate - *to); *to < 1e-3 {
			*to = 0
		}
	}
	before := &p.counted
	smooth(&p.Allowed, rate(before.Allowed, now.Allowed))
	smooth(&p.Denied, rate(before.Denied, now.Denied))
	smooth(&p.WouldAllow, rate(before.WouldAllow, now.WouldAllow))
	smooth(&p.WouldDeny, rate(before.WouldDeny, now.WouldDeny))
	smooth(&p.Unanswered, rate(before.Unanswered(), now.Unanswered()))
	s.wouldDeny += rate(before.WouldDeny, now.WouldDeny)
	for j := range now.BySource {
		s.bySource[j] += rate(before.BySource[j], now.BySource[j])
	}
	p.counted, p.place = *now, i
	r.policies[now.Policy] = p
}

// rows are the policies, those that deny most first, then those that are asked most.
func (r *rates) rows() []PolicyRates {
	rows := make([]PolicyRates, 0, len(r.policies))
	for _, p := range r.policies {
		rows = append(rows, *p)
	}
	slices.SortFunc(rows, func(a, b PolicyRates) int {
		return cmp.Or(cmp.Compare(b.Denied+b.WouldDeny, a.Denied+a.WouldDeny), cmp.Compare(b.Busy(), a.Busy()), cmp.Compare(a.place, b.place))
	})
	return rows
}
