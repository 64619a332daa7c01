// Package httplimit is middleware for net/http servers that limits requests by what a gateway in front does not know: the user of a session,
// the route that matched, what a request costs.
//
// A [Middleware] turns a request into attributes, has a [ratelimit.Limiter] decide, and tells the client: RateLimit and RateLimit-Policy on
// every response, and for a denial 429, Retry-After and a problem+json body (RFC 9457). While the store is down, policies with onStoreFailure:
// closed deny with 503 and the problem type temporary-reduced-capacity.
//
// # Behind a gateway that limits, too
//
// A gateway such as Envoy adds its own RateLimit fields to the service's, as further lines of the same two lists. Clients see each policy
// once if all have different names; for policies of the service with the same names as some of the gateway's, see [Options.Elsewhere].
// The gateway must not remove the service's fields.
//
// Fields that an inner handler sets (another limiter, or a proxy that passes on another service's answer) are joined with those of this
// middleware when the response begins: one line a field, the policies of this middleware first, and no name twice.
package httplimit

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// Options are what a Middleware is made of. Limiter is required.
type Options struct {
	Limiter *ratelimit.Limiter
	// Domain chooses the policy files: those with this domain, and those without any.
	Domain string
	// Attributes are what the policies match and count by, each name once.
	Attributes []Attribute
	// Cost, if set, says how many units a request costs under each policy. 0 asks whether there is any left and spends nothing.
	// Default: 1.
	Cost func(*http.Request) uint64
	// Skip, if set, says which requests pass without being decided: a health check, say.
	Skip func(*http.Request) bool
	// Denied, if set, answers denied requests instead of [Denial.ServeHTTP].
	Denied func(http.ResponseWriter, *http.Request, *Denial)
	// OnDecision, if set, is told every decision before the handler runs. It must not keep the decision.
	OnDecision func(*http.Request, *ratelimit.Decision)
	// Elsewhere are names of policies that a gateway in front tells clients of by itself, in the same response. The header fields leave them out,
	// here and of inner handlers, lest clients see two items with one name. The gateway's lines are added after the service has
	// answered, so nothing but their names can be known here.
	Elsewhere []string
}

// Middleware limits the requests to handlers. It is safe for concurrent use.
type Middleware struct {
	options  Options
	domain   []byte
	names    [][]byte // of the attributes
	renderer rlheaders.Renderer
	scratch  sync.Pool // of *scratch
}

// scratch is what one request leaves to the next.
type scratch struct {
	text   []byte // the attributes' values, then the fields'
	answer rlheaders.Answer
}

// maxKeptText is how many bytes of text one request leaves to the next.
const maxKeptText = 16 << 10

// New makes a Middleware. The error tells everything that is wrong with the options.
func New(o Options) (*Middleware, error) {
	m := &Middleware{options: o, domain: []byte(o.Domain)}
	m.renderer.ReducedStatus = http.StatusServiceUnavailable
	m.renderer.Elsewhere = slices.Clone(o.Elsewhere)
	m.scratch.New = func() any { return new(scratch) }
	var faults []error
	if o.Limiter == nil {
		faults = append(faults, errors.New("no limiter"))
	}
	seen := map[string]bool{}
	for _, a := range o.Attributes {
		if seen[a.name] {
			faults = append(faults, fmt.Errorf("attribute %s is given twice", a.name))
		}
		seen[a.name] = true
		if a.append == nil {
			a.err = errors.New("the zero attribute")
		}
		faults = append(faults, a.err)
		m.names = append(m.names, []byte(a.name))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("httplimit: %w", err)
	}
	return m, nil
}

// Handler gives a handler that limits the requests to next.
func (m *Middleware) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if m.skips(r) {
			next.ServeHTTP(w, r)
			return
		}
		f, allowed := m.decide(w, r)
		if !allowed {
			return
		}
		wrapped, inner := wrap(w, m)
		inner.fields = f
		inner.fields.put(w.Header(), &inner.lines, &m.renderer)
		defer inner.settle() // also if next writes nothing, or panics
		next.ServeHTTP(wrapped, r)
	})
}

// Allow decides a request that is handled elsewhere: by a framework with handlers of its own, or by another middleware that charges
// something. It puts the fields into w's header. If it returns false, the request is denied and has been answered. Fields of the same
// names that are set afterwards are not joined with these.
func (m *Middleware) Allow(w http.ResponseWriter, r *http.Request) bool {
	if m.skips(r) {
		return true
	}
	f, allowed := m.decide(w, r)
	if allowed {
		f.put(w.Header(), new(fieldLines), &m.renderer)
	}
	return allowed
}

// Tell puts the fields into w's header as they are now, charges nothing and denies nothing: for a response that does not count, such as one
// that is repeated from memory.
func (m *Middleware) Tell(w http.ResponseWriter, r *http.Request) {
	if m.skips(r) {
		return
	}
	s := m.scratch.Get().(*scratch)
	defer m.release(s)
	call := m.begin(r, s)
	defer call.Release()
	m.renderer.Render(call.Peek(r.Context()), &s.answer)
	f := s.fields()
	f.put(w.Header(), new(fieldLines), &m.renderer)
}

func (m *Middleware) skips(r *http.Request) bool {
	return m.options.Skip != nil && m.options.Skip(r)
}

// decide decides r, and answers it if it is denied.
func (m *Middleware) decide(w http.ResponseWriter, r *http.Request) (f fields, allowed bool) {
	s := m.scratch.Get().(*scratch)
	defer m.release(s)
	call := m.begin(r, s)
	defer call.Release()
	d := call.Check(r.Context())
	if m.options.OnDecision != nil {
		m.options.OnDecision(r, d)
	}
	m.renderer.Render(d, &s.answer)
	f = s.fields()
	switch {
	case !d.Allowed:
		f.put(w.Header(), new(fieldLines), &m.renderer)
		m.deny(w, r, d, &s.answer)
	case d.Abandoned(r.Context()): // nobody waits for the answer
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		return f, true
	}
	return f, false
}

// begin starts a call with all that is known of r. The call's values are in s.
func (m *Middleware) begin(r *http.Request, s *scratch) *ratelimit.Call {
	s.text = s.text[:0]
	call := m.options.Limiter.Begin(m.domain)
	for i := range m.options.Attributes {
		start := len(s.text)
		var ok bool
		if s.text, ok = m.options.Attributes[i].append(s.text, r); ok {
			call.Add(0, m.names[i], s.text[start:])
		}
	}
	if m.options.Cost != nil {
		call.SetCost(m.options.Cost(r))
	}
	return call
}

func (m *Middleware) release(s *scratch) {
	if cap(s.text) <= maxKeptText {
		m.scratch.Put(s)
	}
}

// Denial is how a request is denied. It and what it points to are valid until the handler it is given to returns.
type Denial struct {
	// Status is 429, or 503 if only policies with onStoreFailure: closed denied, while the store was down.
	Status int
	// Problem is the body, of type application/problem+json.
	Problem  []byte
	Decision *ratelimit.Decision
}

// deny answers a denied request. The fields are in the header already.
func (m *Middleware) deny(w http.ResponseWriter, r *http.Request, d *ratelimit.Decision, a *rlheaders.Answer) {
	h := w.Header()
	h.Set(rlheaders.FieldCacheControl, rlheaders.NoStore)
	h.Del(rlheaders.FieldRetryAfter) // there is none if no waiting helps
	if len(a.RetryAfter) > 0 {
		h.Set(rlheaders.FieldRetryAfter, string(a.RetryAfter))
	}
	denial := &Denial{Status: a.Status, Problem: a.Body, Decision: d}
	if m.options.Denied != nil {
		m.options.Denied(w, r, denial)
		return
	}
	denial.ServeHTTP(w, r)
}

// ServeHTTP writes the status and the problem. RateLimit, RateLimit-Policy, Retry-After and Cache-Control are in the header before.
func (d *Denial) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set(rlheaders.FieldContentType, rlheaders.ProblemContentType)
	h.Set("Content-Length", strconv.Itoa(len(d.Problem)))
	w.WriteHeader(d.Status)
	w.Write(d.Problem)
}
