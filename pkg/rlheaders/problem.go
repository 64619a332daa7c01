package rlheaders

import (
	"cmp"
	"net/http"
	"strconv"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// deny adds what only a denial carries: when to come back, if ever, and the problem.
func (a *Answer) deny(r *Renderer, t *templates, d *ratelimit.Decision) {
	if wait, ok := d.Wait(); ok {
		a.RetryAfter = strconv.AppendInt(a.RetryAfter, max(1, Seconds(wait)), 10)
	}
	a.Status = http.StatusTooManyRequests
	kind, code := `{"type":"/errors/rate-limited","title":"Too Many Requests"`, `"RATE_LIMITED"`
	if d.Unavailable() {
		a.Status = cmp.Or(r.ReducedStatus, a.Status)
		kind, code = `{"type":"/errors/temporary-reduced-capacity","title":"Temporary reduced capacity"`, `"TEMPORARY_REDUCED_CAPACITY"`
	}
	a.Body = append(append(a.Body, kind...), `,"status":`...)
	a.Body = strconv.AppendInt(a.Body, int64(a.Status), 10)
	a.Body = append(append(a.Body, `,"code":`...), code...)
	a.appendViolated(t, d)
	if len(a.RetryAfter) > 0 {
		a.Body = append(append(a.Body, `,"retryAfterSeconds":`...), a.RetryAfter...)
	}
	a.Body = append(a.Body, '}')
}

// appendViolated names the policies that denied, the strictest first, as far as clients may know them.
func (a *Answer) appendViolated(t *templates, d *ratelimit.Decision) {
	a.shown = a.shown[:0]
	for i := range d.Checks {
		if c := &d.Checks[i]; !c.Shadow() && c.Denied() && c.Policy.Expose != policy.ExposeNever {
			a.insert(c)
		}
	}
	for i, c := range a.shown {
		one := t.of(c)
		if i == 0 {
			a.Body = one.appendJSON(append(a.Body, `,"policy":`...), c)
			a.Body = append(a.Body, `,"violated-policies":[`...)
		} else {
			a.Body = append(a.Body, ',')
		}
		a.Body = one.appendJSON(a.Body, c)
	}
	if len(a.shown) > 0 {
		a.Body = append(a.Body, ']')
	}
}
