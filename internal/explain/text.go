package explain

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// String is the report for people.
func (r *Report) String() string {
	var t text
	t.request(r)
	var matching, near, far []Policy
	for _, p := range r.Policies {
		switch {
		case len(p.Hits) > 0:
			matching = append(matching, p)
		case len(p.Unmet) == 1:
			near = append(near, p)
		default:
			far = append(far, p)
		}
	}
	t.matching(matching)
	t.others("nearly match", near)
	t.others("do not match", far)
	t.answer(&r.Answer)
	return t.String()
}

type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

func (t *text) request(r *Report) {
	t.line("request in domain %q, policy set %s", r.Domain, r.Version)
	if !r.DomainKnown {
		t.line("  no policy file serves this domain")
	}
	for _, f := range r.Attributes {
		t.line("  %s = %q", f.Attribute, f.Value)
	}
	if r.LooksHashed {
		t.line("  the apiKey given looks like a hash: give the key itself, or --hashed")
	}
	if len(r.Unused) > 0 {
		list := make([]string, len(r.Unused))
		for i, key := range r.Unused {
			list[i] = strconv.Quote(key)
		}
		t.line("  no policy has a use for: %s", strings.Join(list, ", "))
	}
	switch {
	case r.InvalidIPs == 1:
		t.line("  not an IP address: 1 value")
	case r.InvalidIPs > 1:
		t.line("  not an IP address: %d values", r.InvalidIPs)
	}
	if r.Truncated {
		t.line("  more than %d descriptors, or %d entries in one: the policies' onStoreFailure decides",
			descriptors.MaxDescriptors, descriptors.MaxEntries)
	}
}

func (t *text) matching(list []Policy) {
	t.line("\npolicies that match")
	if len(list) == 0 {
		t.line("  none: the request is let through")
	}
	for _, p := range list {
		mode := ""
		if p.Shadow {
			mode = "  (shadow: changes no answer)"
		}
		t.line("  %s  %s%s", p.ID, p.Position, mode)
		for i := range p.Hits {
			t.hit(&p.Hits[i])
		}
		for _, o := range p.Expired {
			t.line("    override  %s expired %s%s", o.Position, o.Until.Format(time.RFC3339), comment(&o))
		}
	}
}

func (t *text) hit(h *Hit) {
	if h.Missing != "" {
		does := "the policy is skipped"
		if h.Denies {
			does = "the request is denied"
		}
		t.line("    lacks %s for its key: %s (onMissingKey)", h.Missing, does)
		return
	}
	t.line("    key       %s", h.Key)
	t.line("    hash tag  %s", h.HashTag)
	t.line("    numbers   %s", h.Numbers)
	if o := h.Override; o != nil {
		until := ""
		if o.Until != nil {
			until = " until " + o.Until.Format(time.RFC3339)
		}
		t.line("    override  %s%s%s", o.Position, until, comment(o))
	}
}

func comment(o *Override) string {
	if o.Comment == "" {
		return ""
	}
	return ": " + o.Comment
}

func (t *text) others(title string, list []Policy) {
	if len(list) == 0 {
		return
	}
	t.line("\npolicies that %s", title)
	for _, p := range list {
		t.line("  %s  %s", p.ID, p.Position)
		for _, u := range p.Unmet {
			got := "absent"
			if len(u.Got) > 0 {
				got = quoted(u.Got)
			}
			t.line("    %s is %s, must be %s", u.Attribute, got, u.Wanted)
		}
	}
}

func (t *text) answer(a *Answer) {
	if a.Live {
		t.line("\nanswer now, of which nothing was spent")
	} else {
		t.line("\nanswer if every bucket is full")
	}
	if a.Allowed {
		t.line("  allowed")
	} else {
		t.line("  denied")
	}
	for i := range a.Checks {
		t.check(&a.Checks[i], a.Live)
	}
	t.field(rlheaders.FieldPolicy, a.RateLimitPolicy)
	t.field(rlheaders.FieldRateLimit, a.RateLimit)
	t.field(rlheaders.FieldRetryAfter, a.RetryAfter)
	t.field("Body", string(a.Body))
}

func (t *text) check(c *Check, live bool) {
	who, source := c.Policy, ""
	if c.Shadow {
		who += " (shadow)"
	}
	if live {
		source = ", says " + c.Source
	}
	switch {
	case c.Source == ratelimit.FromNever.String():
		t.line("  %s: denies for ever, the cost %d is more than the bucket holds", who, c.Cost)
	case c.Source == ratelimit.FromMissingKey.String():
		t.line("  %s: denies, for want of %s", who, c.Missing)
	case c.Remaining != nil && c.Denied && live:
		t.line("  %s: denies, %s left, %s to wait%s", who, policy.FormatNumber(*c.Remaining), seconds(c.Wait), source)
	case c.Remaining != nil:
		t.line("  %s: %s left%s", who, policy.FormatNumber(*c.Remaining), source)
	case c.Denied:
		t.line("  %s: denies (%s)", who, c.Source)
	case c.Admitted:
		t.line("  %s: admits (%s)", who, c.Source)
	default:
		t.line("  %s: not asked", who)
	}
}

// seconds is a wait as a policy file has times.
func seconds(s float64) string { return policy.FormatWindow(int64(s*1e6 + 0.5)) }

func (t *text) field(name, value string) {
	if value != "" {
		t.line("  %s: %s", name, value)
	}
}
