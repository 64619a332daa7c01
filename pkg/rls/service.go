package rls

import (
	"context"
	"math"
	"math/bits"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// Hooks are told what is wrong or unusual about calls. Each may be nil; none may keep what it is given.
type Hooks struct {
	// OnDecision: a call was decided, with the call's context. The decision is valid until it returns. Who needs no context has
	// ratelimit.Options.OnDecision.
	OnDecision func(context.Context, *ratelimit.Decision)
	// OnRefused: a call was answered with an error, since it has no domain or no descriptors at all.
	OnRefused func(reason string)
	// OnUnknownDomain: no policy file serves the call's domain, so it was let through.
	OnUnknownDomain func(domain []byte)
	// OnUnmatched: n of the call's descriptors fed no policy.
	OnUnmatched func(domain []byte, n int)
	// OnUnfed: the same, with the call, and a bit in used for each descriptor that fed one.
	OnUnfed func(req *descriptors.Request, used uint64)
	// OnTruncated: the call had more descriptors or entries than are read.
	OnTruncated func(domain []byte)
	// OnLimitIgnored: n of the call's descriptors carried a limit of their own, which is not used.
	OnLimitIgnored func(domain []byte, n int)
}

// Service answers Envoy's calls with a limiter's decisions. It implements [Handler].
type Service struct {
	limiter  *ratelimit.Limiter
	hooks    Hooks
	renderer rlheaders.Renderer
}

// NewService makes a service that decides with l.
func NewService(l *ratelimit.Limiter, h Hooks) *Service {
	nop := func([]byte, int) {}
	if h.OnRefused == nil {
		h.OnRefused = func(string) {}
	}
	if h.OnUnknownDomain == nil {
		h.OnUnknownDomain = func([]byte) {}
	}
	if h.OnTruncated == nil {
		h.OnTruncated = func([]byte) {}
	}
	if h.OnUnfed == nil {
		h.OnUnfed = func(*descriptors.Request, uint64) {}
	}
	if h.OnUnmatched == nil {
		h.OnUnmatched = nop
	}
	if h.OnLimitIgnored == nil {
		h.OnLimitIgnored = nop
	}
	return &Service{limiter: l, hooks: h}
}

// Prepare makes what answers under set need. Called before the limiter uses a set, it spares the first calls the wait.
func (s *Service) Prepare(set *policy.Set) { s.renderer.Prepare(set) }

// ShouldRateLimit decides req. The only errors are those of a caller that sends no domain or no descriptors: nothing that a
// client of Envoy controls gives one, for Envoy lets a request through when its call fails.
func (s *Service) ShouldRateLimit(ctx context.Context, req *descriptors.Request, resp *Response) error {
	if len(req.Domain) == 0 {
		return s.refuse("the rate limit domain must not be empty")
	}
	if len(req.Descriptors) == 0 {
		return s.refuse("the rate limit request must have descriptors")
	}
	call := req.Begin(s.limiter)
	defer call.Release()
	d := call.Check(ctx)
	if s.hooks.OnDecision != nil {
		s.hooks.OnDecision(ctx, d)
	}
	s.report(req, d)
	s.respond(req, d, resp)
	return nil
}

func (s *Service) refuse(reason string) error {
	s.hooks.OnRefused(reason)
	return status.Error(codes.InvalidArgument, reason)
}

// report tells the hooks what is unusual.
func (s *Service) report(req *descriptors.Request, d *ratelimit.Decision) {
	if req.Truncated {
		s.hooks.OnTruncated(req.Domain)
	}
	limits := 0
	for i := range req.Descriptors {
		if req.Descriptors[i].HasLimit {
			limits++
		}
	}
	if limits > 0 {
		s.hooks.OnLimitIgnored(req.Domain, limits)
	}
	if !d.DomainKnown {
		s.hooks.OnUnknownDomain(req.Domain)
		return
	}
	if n := len(req.Descriptors) - bits.OnesCount64(d.Used); n > 0 {
		s.hooks.OnUnmatched(req.Domain, n)
		s.hooks.OnUnfed(req, d.Used)
	}
}

// respond renders d.
func (s *Service) respond(req *descriptors.Request, d *ratelimit.Decision, resp *Response) {
	f := &resp.fields
	s.renderer.Render(d, f)
	resp.Code = OK
	resp.header("ratelimit-policy", f.Policy)
	resp.header("ratelimit", f.RateLimit)
	if !d.Allowed {
		resp.Code = OverLimit
		resp.header("retry-after", f.RetryAfter)
		resp.header("content-type", problemJSON)
		resp.header("cache-control", noStore)
		resp.Body = f.Body
	}
	if f.Binding != nil {
		resp.Policy, resp.Source = f.Binding.Policy.ID, f.Binding.Result.Source.String()
	}
	for i := range req.Descriptors {
		resp.Statuses = append(resp.Statuses, s.status(d, i))
	}
}

var (
	problemJSON = []byte(rlheaders.ProblemContentType)
	noStore     = []byte(rlheaders.NoStore)
)

func (r *Response) header(name string, value []byte) {
	if len(value) > 0 {
		r.Headers = append(r.Headers, Header{name, value})
	}
}

// status is descriptor i's part of the answer: the verdict of the policies that used it in match or key, and the numbers of the
// strictest of those that the header fields may tell of. A hidden policy must not even show by hiding the numbers of others.
func (s *Service) status(d *ratelimit.Decision, i int) Status {
	st := Status{Code: OK}
	var shown *ratelimit.Check
	for j := range d.Checks {
		c := &d.Checks[j]
		if c.Groups>>i&1 == 0 || c.Shadow() {
			continue
		}
		if c.Denied() {
			st.Code = OverLimit
		}
		if c.Known && rlheaders.Shows(c) && (shown == nil || ratelimit.Stricter(c, shown)) {
			shown = c
		}
	}
	if shown == nil {
		return st
	}
	left, reset, _ := rlheaders.Left(shown)
	st.HasLimit = true
	st.RequestsPerUnit, st.Unit = perUnit(shown.Numbers)
	st.Remaining = saturate(float64(left))
	st.ResetSeconds = reset
	return st
}

// perUnit gives a limit in the only form that the protocol has for one. A window that is no unit has none.
func perUnit(n *policy.Numbers) (uint32, Unit) {
	if n.Kind == algorithm.TokenBucket {
		return saturate(n.Refill), unitOf(time.Duration(n.Unit))
	}
	return saturate(n.Capacity), unitOf(time.Duration(n.Window) * time.Microsecond)
}

func unitOf(d time.Duration) Unit {
	switch d {
	case time.Second:
		return Second
	case time.Minute:
		return Minute
	case time.Hour:
		return Hour
	case 24 * time.Hour:
		return Day
	}
	return 0
}

func saturate(n float64) uint32 { return uint32(min(n, math.MaxUint32)) }
