// Package explain says which policies apply to a request, why, and what it would be answered: of policy files, or of a running service.
package explain

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// Report is all about one request. Durations are in seconds.
type Report struct {
	Domain      string   `json:"domain"`
	DomainKnown bool     `json:"domainKnown"` // some policy file serves it
	Version     string   `json:"version"`     // of the policies
	Attributes  []Fact   `json:"attributes"`
	Unused      []string `json:"unused,omitempty"`     // keys of entries that no policy has a use for
	InvalidIPs  int      `json:"invalidIPs,omitempty"` // values that should be addresses
	// LooksHashed: an API key that has the form of a hash was taken for a key.
	LooksHashed bool `json:"looksHashed,omitempty"`
	// Truncated: the request has more descriptors or entries than are read.
	Truncated bool     `json:"truncated,omitempty"`
	Policies  []Policy `json:"policies"`
	Answer    Answer   `json:"answer"`
}

// Fact is an attribute as the policies see it.
type Fact struct {
	Attribute string `json:"attribute"`
	Value     string `json:"value"`
}

// Policy says how a policy relates to the request.
type Policy struct {
	ID       string     `json:"id"`
	Position string     `json:"position"` // file:line:column
	Shadow   bool       `json:"shadow,omitempty"`
	Hits     []Hit      `json:"hits,omitempty"`    // the buckets that count the request; none: it does not apply
	Expired  []Override `json:"expired,omitempty"` // overrides that would apply if their time were not over
	Unmet    []Unmet    `json:"unmet,omitempty"`   // the conditions that keep it from applying
}

// Hit is a bucket that counts the request.
type Hit struct {
	Key      string    `json:"key,omitempty"`
	HashTag  string    `json:"hashTag,omitempty"`
	Numbers  string    `json:"numbers,omitempty"` // as a policy file has them
	Override *Override `json:"override,omitempty"`
	Missing  string    `json:"missing,omitempty"` // the attribute that the key lacks: there is no bucket then, and
	Denies   bool      `json:"denies,omitempty"`  // the request is denied, or else the policy skipped
}

// Override is one of a policy's.
type Override struct {
	Position string     `json:"position"`
	Until    *time.Time `json:"until,omitempty"`
	Comment  string     `json:"comment,omitempty"`
}

// Unmet is a condition that does not hold.
type Unmet struct {
	Attribute string   `json:"attribute"`
	Got       []string `json:"got"`
	Wanted    string   `json:"wanted"`
}

// Answer is what the service says.
type Answer struct {
	// Live: by the buckets as they are, before the request. Otherwise by full buckets, after it.
	Live            bool            `json:"live"`
	Allowed         bool            `json:"allowed"`
	Checks          []Check         `json:"checks"`
	RateLimitPolicy string          `json:"rateLimitPolicy,omitempty"` // these are header fields
	RateLimit       string          `json:"rateLimit,omitempty"`
	RetryAfter      string          `json:"retryAfter,omitempty"`
	Body            json.RawMessage `json:"body,omitempty"`
}

// Check is what one bucket says.
type Check struct {
	Policy    string   `json:"policy"`
	Shadow    bool     `json:"shadow,omitempty"`
	Source    string   `json:"source,omitempty"` // who decided; empty: the bucket was not asked
	Admitted  bool     `json:"admitted"`
	Denied    bool     `json:"denied"`
	Cost      uint64   `json:"cost"`
	Missing   string   `json:"missing,omitempty"`
	Remaining *float64 `json:"remaining,omitempty"` // if known
	Wait      float64  `json:"wait,omitempty"`
}

// Full reports on req under set, and answers as if nobody had called before. hashed: API keys may be given as their hashes.
func Full(ctx context.Context, set *policy.Set, req *descriptors.Request, hashed bool) *Report {
	r := describe(set, req, hashed)
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10})
	call := req.Begin(ratelimit.New(ratelimit.Options{Store: store, Policies: set}))
	defer call.Release()
	r.answer(call.Check(ctx))
	return r
}

// Live reports on req under set, and answers by the buckets of store. It only looks at them: nothing is spent or given back. A refund, and a
// report of usage to a postpaid policy, is answered as a call of cost 1.
func Live(ctx context.Context, set *policy.Set, store ratelimit.Store, req *descriptors.Request, hashed bool) *Report {
	if hashed {
		set = set.WithHashedKeys()
	}
	r := describe(set, req, hashed)
	call := req.Begin(ratelimit.New(ratelimit.Options{Store: store, Policies: set}))
	defer call.Release()
	r.answer(call.Peek(ctx))
	r.Answer.Live = true
	return r
}

// Why reports on req under set without any answer.
func Why(set *policy.Set, req *descriptors.Request) *Report { return describe(set, req, false) }

// describe tells of the request and the policies.
func describe(set *policy.Set, req *descriptors.Request, hashed bool) *Report {
	view := set.View(req.Domain)
	var facts policy.Attributes
	facts.Reset(view)
	facts.Partial = req.Truncated
	r := &Report{
		Domain: string(req.Domain), DomainKnown: view.Known(), Version: set.Version(), Truncated: req.Truncated,
		Attributes: []Fact{}, Policies: []Policy{},
	}
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if !facts.Add(i, e.Key, e.Value) {
				r.Unused = append(r.Unused, string(e.Key))
			}
			r.LooksHashed = r.LooksHashed || !hashed && view.Attribute(e.Key) == "apiKey" && policy.LooksHashed(string(e.Value))
		}
	}
	for _, f := range facts.Facts() {
		r.Attributes = append(r.Attributes, Fact{f.Attribute, f.Value})
	}
	for _, e := range facts.Explain() {
		r.Policies = append(r.Policies, describePolicy(e))
	}
	r.InvalidIPs = facts.InvalidIPs
	return r
}

func describePolicy(e policy.Explanation) Policy {
	p := Policy{ID: e.Policy.ID, Position: e.Policy.Pos.String(), Shadow: e.Policy.Mode == policy.Shadow}
	for i := range e.Hits {
		p.Hits = append(p.Hits, describeHit(&e.Hits[i]))
	}
	for _, o := range e.Expired {
		p.Expired = append(p.Expired, describeOverride(o))
	}
	for _, u := range e.Unmet {
		p.Unmet = append(p.Unmet, Unmet{u.Condition.Attribute, append([]string{}, u.Got...), wanted(u.Condition)})
	}
	return p
}

func describeHit(h *policy.Hit) Hit {
	if h.Missing != "" {
		return Hit{Missing: h.Missing, Denies: h.Policy.OnMissingKey == policy.DenyRequest}
	}
	hit := Hit{Key: h.Key.String(), HashTag: tagOf(h.Key.String()), Numbers: h.Numbers.String()}
	for i := range h.Policy.Overrides {
		if o := &h.Policy.Overrides[i]; &o.Numbers == h.Numbers {
			view := describeOverride(o)
			hit.Override = &view
		}
	}
	return hit
}

func describeOverride(o *policy.Override) Override {
	view := Override{Position: o.Pos.String(), Comment: o.Comment}
	if !o.Until.IsZero() {
		view.Until = &o.Until
	}
	return view
}

// tagOf shows the part of a key that decides its slot: what stands in the braces, of which a key has one pair.
func tagOf(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return tag
}

func wanted(c policy.Condition) string {
	switch c.Kind {
	case policy.Present:
		return "present"
	case policy.Absent:
		return "absent"
	case policy.Prefix:
		return fmt.Sprintf("%q and more", c.Values[0])
	}
	return quoted(c.Values)
}

func quoted(values []string) string {
	list := make([]string, len(values))
	for i, v := range values {
		list[i] = strconv.Quote(v)
	}
	return strings.Join(list, " or ")
}

// answer adds what the service says.
func (r *Report) answer(d *ratelimit.Decision) {
	var renderer rlheaders.Renderer
	var a rlheaders.Answer
	renderer.Render(d, &a)
	r.Answer = Answer{
		Allowed: d.Allowed, Checks: []Check{},
		RateLimitPolicy: string(a.Policy), RateLimit: string(a.RateLimit), RetryAfter: string(a.RetryAfter), Body: append([]byte(nil), a.Body...),
	}
	for i := range d.Checks {
		c := &d.Checks[i]
		check := Check{
			Policy: c.Policy.ID, Shadow: c.Shadow(), Denied: c.Denied(), Admitted: c.Result.Outcome == ratelimit.Admitted,
			Cost: c.Cost, Missing: c.Missing, Wait: c.Result.Wait.Seconds(),
		}
		if check.Denied || check.Admitted || c.Known {
			check.Source = c.Result.Source.String()
		}
		if c.Known {
			remaining := c.Result.Remaining
			check.Remaining = &remaining
		}
		r.Answer.Checks = append(r.Answer.Checks, check)
	}
}
