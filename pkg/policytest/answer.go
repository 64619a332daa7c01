package policytest

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// answer is what a call was answered, in the words of a test.
type answer struct {
	allowed    bool
	denies     []string           // the policies that denied it, in file order
	wouldDeny  []string           // the shadow policies that would have
	remaining  map[string]float64 // by policy; only what is known
	retryAfter string             // as clients are told: whole seconds; empty: nothing
}

func ask(ctx context.Context, l *ratelimit.Limiter, req *descriptors.Request) *answer {
	call := req.Begin(l)
	defer call.Release()
	d := call.Check(ctx)
	a := &answer{allowed: d.Allowed, remaining: map[string]float64{}}
	for i := range d.Checks {
		c := &d.Checks[i]
		switch {
		case c.Denied() && c.Shadow():
			a.wouldDeny = append(a.wouldDeny, c.Policy.ID)
		case c.Denied():
			a.denies = append(a.denies, c.Policy.ID)
		}
		if left, seen := a.remaining[c.Policy.ID]; c.Known && (!seen || c.Result.Remaining < left) {
			a.remaining[c.Policy.ID] = c.Result.Remaining
		}
	}
	a.denies, a.wouldDeny = slices.Compact(a.denies), slices.Compact(a.wouldDeny)
	var renderer rlheaders.Renderer
	var told rlheaders.Answer
	renderer.Render(d, &told)
	a.retryAfter = string(told.RetryAfter)
	return a
}

// mismatch is the fault of an expectation that the n-th call of a step did not meet.
func mismatch(s *Step, pos policy.Position, n int, at time.Duration, want, got string) policy.Fault {
	which := ""
	if s.Repeat > 1 {
		which = fmt.Sprintf("call %d of %d, ", n+1, s.Repeat)
	}
	return policy.Fault{
		Pos:     pos,
		Message: fmt.Sprintf("%sat %s: expected %s, got %s", which, policy.FormatWindow(at.Microseconds()), want, got),
	}
}

// verdict describes the answer as a whole.
func (a *answer) verdict() string {
	if a.allowed {
		return "allow"
	}
	text := "deny by " + names(a.denies)
	if a.retryAfter != "" {
		text += ", retry after " + a.retryAfter + "s"
	}
	return text
}

func names(ids []string) string {
	if len(ids) == 0 {
		return "no policy"
	}
	return strings.Join(ids, ", ")
}

func expectDecision(allow bool) func(*answer) (want, got string) {
	return func(a *answer) (want, got string) {
		switch {
		case a.allowed == allow:
			return "", ""
		case allow:
			return "allow", a.verdict()
		default:
			return "deny", a.verdict()
		}
	}
}

func expectBy(ids []string) func(*answer) (want, got string) {
	want := slices.Sorted(slices.Values(ids))
	return func(a *answer) (string, string) { return names(want), names(slices.Sorted(slices.Values(a.denies))) }
}

func expectWouldDeny(ids []string) func(*answer) (want, got string) {
	want := slices.Sorted(slices.Values(ids))
	return func(a *answer) (string, string) { return names(want), names(slices.Sorted(slices.Values(a.wouldDeny))) }
}

// expectRemaining compares what is left under one policy; of no policy: the least that is left under any. Parts of a token count for nothing.
func expectRemaining(id string, want float64) func(*answer) (want, got string) {
	return func(a *answer) (string, string) {
		got, known := a.remaining[id]
		if id == "" {
			got = math.Inf(1)
			for _, left := range a.remaining {
				got, known = min(got, left), true
			}
		}
		if !known {
			return policy.FormatNumber(want) + " remaining", "nothing known: the policy was not asked"
		}
		return policy.FormatNumber(want) + " remaining", policy.FormatNumber(math.Floor(got)) + " remaining"
	}
}

func expectRetryAfter(seconds int64) func(*answer) (want, got string) {
	want := "no retry after"
	if seconds > 0 {
		want = fmt.Sprintf("retry after %ds", seconds)
	}
	return func(a *answer) (string, string) {
		if a.retryAfter == "" {
			return want, "no retry after"
		}
		return want, "retry after " + a.retryAfter + "s"
	}
}
