// Package rlheaders turns a decision into what a client is told: the header fields RateLimit and RateLimit-Policy of
// draft-ietf-httpapi-ratelimit-headers-11, Retry-After, and a problem+json body (RFC 9457) for denials.
//
// In the draft's words a policy has a quota q and a window w in seconds; a client has r left, for the next t seconds.
package rlheaders

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// The names of the header fields.
const (
	FieldPolicy       = "RateLimit-Policy"
	FieldRateLimit    = "RateLimit"
	FieldRetryAfter   = "Retry-After"
	FieldContentType  = "Content-Type"
	FieldCacheControl = "Cache-Control"
)

// What denials carry, and only they: Envoy adds to the upstream's own fields instead of replacing them.
const (
	ProblemContentType = "application/problem+json"
	NoStore            = "no-store"
)

// Answer is what a client is told. An empty slice means that the field is not sent. It is meant to be reused; its bytes are
// valid until it is rendered again.
type Answer struct {
	Policy     []byte // value of RateLimit-Policy
	RateLimit  []byte // value of RateLimit
	RetryAfter []byte // value of Retry-After: whole seconds, at least 1
	Body       []byte // the problem, for a denial
	// Status is the HTTP status of a denial: 429, or Renderer.ReducedStatus if nothing but failure modes denied. 0 if allowed.
	Status int
	// Binding is the strictest policy shown to clients or not, nil if none applied.
	Binding *ratelimit.Check

	shown []*ratelimit.Check // scratch
}

// Renderer renders decisions. What does not change between two answers under one policy set is made once per set, and kept
// for the two sets used last, since calls under way go on with the old one after a reload. The zero Renderer is ready for use, by any
// number of goroutines; its fields are set before.
type Renderer struct {
	// ReducedStatus is the status of denials by nothing but policies with onStoreFailure: closed while the store is down. Default 429: all that
	// Envoy's rate limit filter knows.
	ReducedStatus int
	// Elsewhere are names of policies that the header fields leave out, since another hop of the response's way tells of them.
	Elsewhere []string

	kept [2]atomic.Pointer[templates]
	last atomic.Uint32 // which of them was made last
}

// Prepare makes what Render needs for set, so that no call has to wait for it: for ten thousand policies it takes tens of
// milliseconds.
func (r *Renderer) Prepare(set *policy.Set) { r.templates(set) }

// Render fills a with what d's client is told.
func (r *Renderer) Render(d *ratelimit.Decision, a *Answer) {
	t := r.templates(d.Set)
	a.Policy, a.RateLimit, a.RetryAfter, a.Body = a.Policy[:0], a.RateLimit[:0], a.RetryAfter[:0], a.Body[:0]
	a.Binding, a.Status = nil, 0
	a.shown = a.shown[:0]
	for i := range d.Checks {
		c := &d.Checks[i]
		if c.Shadow() {
			continue
		}
		if a.Binding == nil || ratelimit.Stricter(c, a.Binding) {
			a.Binding = c
		}
		if Shows(c) {
			a.insert(c)
		}
	}
	for _, c := range a.shown {
		one := t.of(c)
		if one.hidden {
			continue
		}
		if len(a.Policy) > 0 {
			a.Policy = append(a.Policy, ", "...)
		}
		a.Policy = append(one.appendField(a.Policy, c), one.params...)
		if c.Known {
			a.RateLimit = appendItem(a.RateLimit, one, c, d.Allowed || c.Denied())
		}
	}
	if !d.Allowed {
		a.deny(r, t, d)
	}
}

// Shows reports whether the client may see the check's numbers in this answer.
func Shows(c *ratelimit.Check) bool {
	switch c.Policy.Expose {
	case policy.ExposeNever:
		return false
	case policy.ExposeOnReject:
		return c.Denied()
	}
	return true
}

// insert keeps shown in order, the most constraining first, with one element a policy.
func (a *Answer) insert(c *ratelimit.Check) {
	at := len(a.shown)
	for at > 0 && ratelimit.Stricter(c, a.shown[at-1]) {
		at--
	}
	for i, other := range a.shown {
		if other.Policy != c.Policy {
			continue
		}
		if i < at {
			return
		}
		copy(a.shown[at+1:i+1], a.shown[at:i])
		a.shown[at] = c
		return
	}
	a.shown = append(a.shown, nil)
	copy(a.shown[at+1:], a.shown[at:])
	a.shown[at] = c
}

// appendItem appends "name";r=…;t=… to the field's list. Without t where the answer is a denial by others: a time there would be
// taken for when to come back.
func appendItem(b []byte, named *template, c *ratelimit.Check, withReset bool) []byte {
	if len(b) > 0 {
		b = append(b, ", "...)
	}
	r := remaining(c)
	b = append(named.appendField(b, c), ";r="...)
	b = strconv.AppendInt(b, r, 10)
	if t, ok := resetOf(c, r); ok && withReset {
		b = append(b, ";t="...)
		b = strconv.AppendInt(b, t, 10)
	}
	return b
}

// Left gives r and t of a check that is Known; hasReset is false if nothing is known of t.
func Left(c *ratelimit.Check) (left, reset int64, hasReset bool) {
	left = remaining(c)
	reset, hasReset = resetOf(c, left)
	return left, reset, hasReset
}

// maxInteger is the largest integer of a structured field (RFC 9651, 3.3.1).
const maxInteger = 999_999_999_999_999

// remaining is r: what is left in whole units, never shown negative.
func remaining(c *ratelimit.Check) int64 { return int64(min(max(0, c.Result.Remaining), maxInteger)) }

// Seconds are whole seconds, rounded up.
func Seconds(d time.Duration) int64 {
	n := int64(d / time.Second)
	if d%time.Second > 0 {
		n++
	}
	return n
}
