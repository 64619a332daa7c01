package policytest

import (
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// expectations reads what must be so about the answers of a call.
func (r *reader) expectations(s *Step, n *policy.Node) {
	add := func(at *policy.Node, last bool, check func(*answer) (want, got string)) {
		s.Expect = append(s.Expect, Expectation{Pos: at.Pos, last: last, check: check})
	}
	if e := n.Get("expect"); e != nil {
		word := e.String()
		if word != "allow" && word != "deny" {
			r.fault(e.Pos, policy.DidYouMean(word, []string{"allow", "deny"}), "expect is allow or deny")
		}
		if n.Get("by") != nil && word == "allow" {
			r.fault(n.Get("by").Pos, "", "by names the policies that deny, and the call is expected to be allowed")
		}
		add(e, false, expectDecision(word == "allow"))
	}
	if e := n.Get("by"); e != nil {
		add(e, false, expectBy(r.policies(e)))
	}
	if e := n.Get("wouldDeny"); e != nil {
		add(e, false, expectWouldDeny(r.policies(e)))
	}
	if e := n.Get("remaining"); e != nil && e.Kind == policy.Mapping {
		for _, f := range e.Fields {
			r.file.ids = append(r.file.ids, named{f.Pos, f.Name})
			add(f.Value, true, expectRemaining(f.Name, r.whole(f.Value, -maxWhole, maxWhole)))
		}
	} else if e != nil {
		add(e, true, expectRemaining("", r.whole(e, -maxWhole, maxWhole)))
	}
	if e := n.Get("retryAfter"); e != nil {
		add(e, true, expectRetryAfter(r.seconds(e)))
	}
	if len(s.Expect) == 0 && n.Get("refund") == nil && n.Get("cost") == nil {
		r.fault(n.Pos, stepExample, "the call expects nothing")
	}
}

// seconds reads a Retry-After: a time of whole seconds, or never, which is 0.
func (r *reader) seconds(n *policy.Node) int64 {
	if n.String() == "never" {
		return 0
	}
	wait := r.duration(n)
	if wait < time.Second || wait%time.Second != 0 {
		r.fault(n.Pos, "write 12s, or never where there is none", "clients are told whole seconds, at least one")
	}
	return int64(wait / time.Second)
}

// maxWhole is the largest number that doubles and integers agree on.
const maxWhole = 1 << 53

func (r *reader) whole(n *policy.Node, least, most float64) float64 {
	v, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil || float64(v) < least || float64(v) > most {
		r.fault(n.Pos, "", "want a whole number from %s to %s", policy.FormatNumber(least), policy.FormatNumber(most))
		return max(least, 0)
	}
	return float64(v)
}

// duration reads a time; none is 0.
func (r *reader) duration(n *policy.Node) time.Duration {
	if n == nil {
		return 0
	}
	micros, message, hint := policy.ParseTime(n.String())
	if message != "" {
		r.fault(n.Pos, hint, "the time %s", message)
	}
	return time.Duration(micros) * time.Microsecond
}

// word reads a single value.
func (r *reader) word(n *policy.Node) string {
	if n.Kind != policy.Scalar {
		r.fault(n.Pos, "", "want a value, not %s", n.Kind)
	}
	return n.String()
}

// policies reads the ids of policies.
func (r *reader) policies(n *policy.Node) []string {
	list := r.words(n)
	for i, id := range list {
		at := n
		if n.Kind == policy.List {
			at = n.Items[i]
		}
		r.file.ids = append(r.file.ids, named{at.Pos, id})
	}
	return list
}

// words reads a value or a list of them.
func (r *reader) words(n *policy.Node) []string {
	if n.Kind != policy.List {
		return []string{r.word(n)}
	}
	list := []string{}
	for _, item := range n.Items {
		list = append(list, r.word(item))
	}
	return list
}
