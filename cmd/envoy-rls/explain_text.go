package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// explain writes all about req under set. hashed: API keys may be given as their hashes.
func explain(out io.Writer, set *policy.Set, req *descriptors.Request, hashed bool) error {
	t := report{hashed: hashed}
	var facts policy.Attributes
	view := set.View(req.Domain)
	facts.Reset(view)
	facts.Partial = req.Truncated

	t.request(set, view, req, &facts)
	var matching, near, far []policy.Explanation
	for _, e := range facts.Explain() {
		switch {
		case len(e.Hits) > 0:
			matching = append(matching, e)
		case len(e.Unmet) == 1:
			near = append(near, e)
		default:
			far = append(far, e)
		}
	}
	t.matching(matching)
	t.others("nearly match", near)
	t.others("do not match", far)
	t.answer(set, req)
	_, err := io.WriteString(out, t.String())
	return err
}

// report is the text that explain prints.
type report struct {
	strings.Builder
	hashed bool
}

func (t *report) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// request tells what the policies see of the request, and gives it to facts.
func (t *report) request(set *policy.Set, view *policy.View, req *descriptors.Request, facts *policy.Attributes) {
	t.line("request in domain %q, policy set %s", req.Domain, set.Version())
	if !view.Known() {
		t.line("  no policy file serves this domain")
	}
	var unused []string
	hash := false
	for i := range req.Descriptors {
		for _, e := range req.Descriptors[i].Entries {
			if !facts.Add(i, e.Key, e.Value) {
				unused = append(unused, fmt.Sprintf("%q", e.Key))
			}
			hash = hash || view.Attribute(e.Key) == "apiKey" && policy.LooksHashed(string(e.Value))
		}
	}
	for _, f := range facts.Facts() {
		t.line("  %s = %q", f.Attribute, f.Value)
	}
	if hash && !t.hashed {
		t.line("  the apiKey given looks like a hash: give the key itself, or --hashed")
	}
	if len(unused) > 0 {
		t.line("  no policy has a use for: %s", strings.Join(unused, ", "))
	}
	if facts.InvalidIPs > 0 {
		t.line("  not an IP address: %s", count(facts.InvalidIPs, "value", "values"))
	}
	if req.Truncated {
		t.line("  more than %d descriptors, or %d entries in one: the policies' onStoreFailure decides",
			descriptors.MaxDescriptors, descriptors.MaxEntries)
	}
}

func (t *report) matching(list []policy.Explanation) {
	t.line("\npolicies that match")
	if len(list) == 0 {
		t.line("  none: the request is let through")
	}
	for _, e := range list {
		mode := ""
		if e.Policy.Mode == policy.Shadow {
			mode = "  (shadow: changes no answer)"
		}
		t.line("  %s  %s%s", e.Policy.ID, e.Policy.Pos, mode)
		for i := range e.Hits {
			t.hit(&e.Hits[i])
		}
		for _, o := range e.Expired {
			t.line("    override  %s expired %s%s", o.Pos, o.Until.Format(time.RFC3339), comment(o))
		}
	}
}

func (t *report) hit(h *policy.Hit) {
	if h.Missing != "" {
		does := "the policy is skipped"
		if h.Policy.OnMissingKey == policy.DenyRequest {
			does = "the request is denied"
		}
		t.line("    lacks %s for its key: %s (onMissingKey)", h.Missing, does)
		return
	}
	key := h.Key.String()
	t.line("    key       %s", key)
	t.line("    hash tag  %s", tagOf(key))
	t.line("    numbers   %s", h.Numbers)
	for i := range h.Policy.Overrides {
		if o := &h.Policy.Overrides[i]; &o.Numbers == h.Numbers {
			t.line("    override  %s%s", o.Pos, remark(o))
		}
	}
}

// tagOf shows the part of a key that decides its slot: what stands in the braces, of which a key has one pair.
func tagOf(key string) string {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return tag
}

func remark(o *policy.Override) string {
	if o.Until.IsZero() {
		return comment(o)
	}
	return " until " + o.Until.Format(time.RFC3339) + comment(o)
}

func comment(o *policy.Override) string {
	if o.Comment == "" {
		return ""
	}
	return ": " + o.Comment
}

func (t *report) others(title string, list []policy.Explanation) {
	if len(list) == 0 {
		return
	}
	t.line("\npolicies that %s", title)
	for _, e := range list {
		t.line("  %s  %s", e.Policy.ID, e.Policy.Pos)
		for _, u := range e.Unmet {
			t.line("    %s is %s, must be %s", u.Condition.Attribute, got(u.Got), wanted(u.Condition))
		}
	}
}

func got(values []string) string {
	if len(values) == 0 {
		return "absent"
	}
	return quoted(values)
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

// answer tells what the service would answer if nobody had called before.
func (t *report) answer(set *policy.Set, req *descriptors.Request) {
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10})
	call := req.Begin(ratelimit.New(ratelimit.Options{Store: store, Policies: set}))
	defer call.Release()
	d := call.Check(context.Background())

	t.line("\nanswer if every bucket is full")
	if d.Allowed {
		t.line("  allowed")
	} else {
		t.line("  denied")
	}
	for i := range d.Checks {
		t.check(&d.Checks[i])
	}
	var renderer rlheaders.Renderer
	var a rlheaders.Answer
	renderer.Render(d, &a)
	t.field(rlheaders.FieldPolicy, a.Policy)
	t.field(rlheaders.FieldRateLimit, a.RateLimit)
	t.field(rlheaders.FieldRetryAfter, a.RetryAfter)
	t.field("Body", a.Body)
}

func (t *report) check(c *ratelimit.Check) {
	shadow := ""
	if c.Shadow() {
		shadow = " (shadow)"
	}
	switch {
	case c.Result.Source == ratelimit.FromNever:
		t.line("  %s%s: denies for ever, the cost %d is more than the bucket holds", c.Policy.ID, shadow, c.Cost)
	case c.Result.Source == ratelimit.FromMissingKey:
		t.line("  %s%s: denies, for want of %s", c.Policy.ID, shadow, c.Missing)
	case c.Known:
		t.line("  %s%s: %s left", c.Policy.ID, shadow, policy.FormatNumber(c.Result.Remaining))
	case c.Denied():
		t.line("  %s%s: denies (%s)", c.Policy.ID, shadow, c.Result.Source)
	case c.Result.Outcome == ratelimit.Admitted:
		t.line("  %s%s: admits (%s)", c.Policy.ID, shadow, c.Result.Source)
	default:
		t.line("  %s%s: not asked", c.Policy.ID, shadow)
	}
}

func (t *report) field(name string, value []byte) {
	if len(value) > 0 {
		t.line("  %s: %s", name, value)
	}
}
