package policydiff

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// differ gathers the changes of one policy.
type differ struct{ changes []Change }

// field notes a field unless it is the same.
func (d *differ) field(name, from, to string, verdict Verdict, note string) {
	if from != to {
		d.changes = append(d.changes, Change{name, from, to, verdict, note})
	}
}

func comparePolicy(from, to *policy.Policy, now time.Time) Policy {
	var d differ
	d.field("mode", from.Mode.String(), to.Mode.String(), modeVerdict(to.Mode), "")
	d.numbers(&from.Numbers, &to.Numbers, to.Charge == policy.Postpaid && from.Charge == to.Charge)
	d.field("domain", from.Domain, to.Domain, domainVerdict(from.Domain, to.Domain), "")
	d.field("match", matchText(from.Match), matchText(to.Match), compareMatch(from.Match, to.Match), "")
	d.field("key", list(from.Key), list(to.Key), Both, "")
	d.field("hashTag", from.HashTag, to.HashTag, Neutral, "")
	d.field("normalize", from.Normalize.String(), to.Normalize.String(), Both, "")
	d.behaviour(from, to)
	d.overrides(from, to, now)

	p := Policy{ID: to.ID, Kind: Changed, Verdict: Neutral, Changes: d.changes, Anew: !slices.Equal(identity(from), identity(to))}
	switch {
	case from.Mode != to.Mode: // all or nothing: what else differs only says of what
		p.Verdict = modeVerdict(to.Mode)
	case to.Mode == policy.Enforce:
		for _, c := range d.changes {
			p.Verdict = p.Verdict.and(c.Verdict)
		}
	}
	return p
}

func modeVerdict(to policy.Mode) Verdict {
	if to == policy.Shadow {
		return Looser
	}
	return Stricter
}

// identity is what a policy's buckets are told apart by, apart from its id.
func identity(p *policy.Policy) []string {
	return append([]string{p.Tag(), p.Mode.String(), p.Normalize.String()}, p.Key...)
}

func (d *differ) behaviour(from, to *policy.Policy) {
	severity := map[policy.FailureMode]int{policy.Open: 1, policy.Local: 2, policy.Closed: 3}
	d.field("onStoreFailure", from.OnStoreFailure.String(), to.OnStoreFailure.String(),
		more(severity[to.OnStoreFailure], severity[from.OnStoreFailure]), "")
	d.field("onMissingKey", from.OnMissingKey.String(), to.OnMissingKey.String(), more(to.OnMissingKey, from.OnMissingKey), "")
	d.field("charge", from.Charge.String(), to.Charge.String(), Both, "")
	d.field("name", from.Name, to.Name, Neutral, "")
	d.field("expose", from.Expose.String(), to.Expose.String(), Neutral, "")
	d.field("advertise", from.Advertise.String(), to.Advertise.String(), Neutral, "")
}

// numbers compares what buckets are decided by.
func (d *differ) numbers(from, to *policy.Numbers, overdraft bool) {
	if from.Kind != to.Kind {
		d.field("algorithm", from.String(), to.String(), numbersVerdict(from, to), "buckets keep the share that is spent")
		return
	}
	amount := policy.FormatNumber
	if from.Kind == algorithm.SlidingLog {
		d.field("limit", amount(from.Capacity), amount(to.Capacity), more(from.Capacity, to.Capacity), "")
		d.field("window", policy.FormatWindow(from.Window), policy.FormatWindow(to.Window), more(to.Window, from.Window), "")
		return
	}
	note := ""
	switch more(from.Capacity, to.Capacity) {
	case Looser:
		note = "buckets get no more at once"
	case Stricter:
		note = "buckets that hold more are cut at their next call"
	}
	d.field("capacity", amount(from.Capacity), amount(to.Capacity), more(from.Capacity, to.Capacity), note)
	d.field("refill", refill(from), refill(to), more(from.Rate, to.Rate), "")
	if overdraft {
		d.field("overdraft", amount(from.Overdraft), amount(to.Overdraft), more(from.Overdraft, to.Overdraft), "")
	}
}

func refill(n *policy.Numbers) string {
	return policy.FormatNumber(n.Refill) + " per " + strings.ToLower(n.Unit.String())
}

// numbersVerdict compares whole numbers by what they admit at once, in the long run and, if one of them is a sliding log, in its window.
func numbersVerdict(from, to *policy.Numbers) Verdict {
	v := more(from.Capacity, to.Capacity).and(more(inTheLongRun(from), inTheLongRun(to))).and(more(from.Overdraft, to.Overdraft))
	if from.Kind != to.Kind {
		window := max(from.Window, to.Window) // the other one has none
		v = v.and(more(within(from, window), within(to, window)))
	}
	return v
}

// within is the most that a bucket admits in so many microseconds: a token bucket all that it holds, and what comes meanwhile.
func within(n *policy.Numbers, window int64) float64 { return n.Capacity + n.Rate*float64(window) }

// inTheLongRun is the most that a bucket admits per microsecond.
func inTheLongRun(n *policy.Numbers) float64 {
	if n.Kind == algorithm.SlidingLog {
		return n.Capacity / float64(n.Window)
	}
	return n.Rate
}

// summary tells of a whole policy in a line.
func summary(p *policy.Policy) string {
	text := fmt.Sprintf("%s, key %s", p.Numbers.String(), list(p.Key))
	if len(p.Match) > 0 {
		text += ", match " + matchText(p.Match)
	}
	if p.Domain != "" {
		text += ", domain " + p.Domain
	}
	if len(p.Overrides) > 0 {
		text += fmt.Sprintf(", %d overrides", len(p.Overrides))
	}
	if p.Mode == policy.Shadow {
		text += ", mode shadow"
	}
	return text + ", onStoreFailure " + p.OnStoreFailure.String()
}

func list(words []string) string { return "[" + strings.Join(words, ", ") + "]" }
