package simulate

import (
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Report is what a replay found. Requests are lines; a key is what a policy counts by: a user, an address, a tenant.
type Report struct {
	Version string    `json:"version"` // of the policy set
	From    time.Time `json:"from"`    // of the first request replayed
	To      time.Time `json:"to"`      // of the last one

	Lines        LineCounts     `json:"lines"`
	BadLines     []BadLine      `json:"badLines,omitempty"` // the first few
	UnusedFields []string       `json:"unusedFields,omitempty"`
	Denied       int64          `json:"denied"` // requests that an enforced policy denied
	DenyShare    float64        `json:"denyShare"`
	Policies     []PolicyReport `json:"policies"` // those that serve the domain, in file order
	TopKeys      []KeyReport    `json:"topKeys"`
	// Forgotten is how many buckets the store had no room for: their keys began anew, with a full bucket.
	Forgotten uint64 `json:"forgotten,omitempty"`
}

// LineCounts say what became of the lines of a log.
type LineCounts struct {
	Replayed     int64 `json:"replayed"`
	DeniedBefore int64 `json:"deniedBefore"` // of those replayed: with status 429
	Skipped      int64 `json:"skipped"`      // for their status 429
	Late         int64 `json:"late"`         // of those replayed: too far behind their successors to be put in order
	Bad          int64 `json:"bad"`          // could not be read
}

// BadLine is a line that could not be read. Lines count from 1.
type BadLine struct {
	Line int64  `json:"line"`
	Why  string `json:"why"`
}

// PolicyReport is what one policy did.
type PolicyReport struct {
	ID       string `json:"id"`
	Shadow   bool   `json:"shadow,omitempty"`
	Requests int64  `json:"requests"` // that it applied to
	Denied   int64  `json:"denied"`   // by this policy, whatever others said
	// Never is how many of the denied no waiting would have helped: they cost more than a bucket holds, or lack a key and must not.
	Never      int64 `json:"never,omitempty"`
	Skipped    int64 `json:"skipped,omitempty"`    // not in Requests: they lack the key
	Overridden int64 `json:"overridden,omitempty"` // of Requests: decided by an override's numbers
	Uncounted  int64 `json:"uncounted,omitempty"`  // of Requests: not in Keys, for want of room

	Keys          int         `json:"keys"`
	DenialsPerKey Quantiles   `json:"denialsPerKey"`
	Suggestion    *Suggestion `json:"suggestion,omitempty"`
	Curve         []Point     `json:"curve,omitempty"`
	Series        Series      `json:"series"`
}

// Quantiles are percentiles of counts over all keys, those with a count of 0 included.
type Quantiles struct {
	P50 int64 `json:"p50"`
	P99 int64 `json:"p99"`
	Max int64 `json:"max"`
}

// KeyReport is a key, by the first 16 hexadecimal digits of its SHA-256, and what became of its requests under a policy.
type KeyReport struct {
	Key      string `json:"key"`
	Policy   string `json:"policy"`
	Requests int64  `json:"requests"`
	Denied   int64  `json:"denied"`
}

// Series counts a policy's decisions by time.
type Series struct {
	Start        time.Time `json:"start"`
	WidthSeconds int64     `json:"widthSeconds"`
	Slots        []Slot    `json:"slots"`
}

// Slot is one stretch of time.
type Slot struct {
	Allowed int64 `json:"allowed"`
	Denied  int64 `json:"denied"`
}

// topKeys is how many of the most hit keys are reported.
const topKeys = 10

func (r *replay) report() *Report {
	rep := &Report{
		Version: r.set.Version(), From: time.UnixMicro(r.first).UTC(), To: time.UnixMicro(r.now).UTC(),
		Lines: r.lines, BadLines: r.bad, UnusedFields: r.fields.unused, Denied: r.denied, DenyShare: r.o.DenyShare,
		Policies: []PolicyReport{}, TopKeys: []KeyReport{}, Forgotten: r.store.Stats().Evicted,
	}
	all := r.set.Policies()
	denials := r.keys.denials(len(all))
	width := r.seriesWidth()
	for _, t := range r.policies {
		if t == nil {
			continue
		}
		t.series.atLeast(width)
		rep.Policies = append(rep.Policies, r.policyReport(t, denials[t.policy.Index]))
	}
	for _, k := range r.keys.top(topKeys) {
		rep.TopKeys = append(rep.TopKeys, KeyReport{k.id.String(), all[k.policy].ID, k.requests, k.denied})
	}
	return rep
}

// seriesWidth is the longest of the policies' stretches of time, so that all can be drawn alike.
func (r *replay) seriesWidth() (width int64) {
	for _, t := range r.policies {
		if t != nil {
			width = max(width, t.series.width)
		}
	}
	return width
}

func (r *replay) policyReport(t *tally, denials []int64) PolicyReport {
	p := PolicyReport{
		ID: t.policy.ID, Shadow: t.policy.Mode == policy.Shadow,
		Requests: t.requests, Denied: t.denied, Never: t.never, Skipped: t.skipped, Overridden: t.overridden, Uncounted: t.unknown,
		Keys: len(denials), DenialsPerKey: quantiles(denials),
		Series: Series{time.UnixMicro(t.series.start).UTC(), t.series.width / 1_000_000, t.series.slots},
	}
	if s := newSearch(&t.policy.Numbers, &t.timeline, r.o.DenyShare); s != nil {
		p.Suggestion, p.Curve = s.suggest(), s.curve()
	}
	return p
}

// limitsOf are the limits of a token bucket with a refill of so many tokens per unit.
func limitsOf(n *policy.Numbers, capacity, refill float64) algorithm.Limits {
	l := n.Limits
	l.Capacity = capacity
	if l.Kind == algorithm.TokenBucket {
		l.Rate = algorithm.RatePer(time.Duration(n.Unit), refill)
	}
	return l
}
