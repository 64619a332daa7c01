package policylint

import (
	"slices"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// reach finds a policy whose conditions contradict each other, its key, or how attributes are composed.
func (l *linter) reach(p *policy.Policy) {
	for i := range p.Match {
		c := &p.Match[i]
		if c.Kind == policy.Absent && p.OnMissingKey == policy.SkipPolicy && (slices.Contains(p.Key, c.Attribute) || p.HashTag == c.Attribute) {
			l.warn(Unreachable, c.Pos, "leave it out of match, or out of key and hashTag",
				"policy %s counts by %s and is for requests without: it never counts one", p.ID, c.Attribute)
		}
		literals, parts := l.set.Composed(p, c.Attribute)
		if len(parts) == 0 || l.envoy.gives(l.set.View([]byte(p.Domain)), c.Attribute) {
			continue
		}
		if !composable(c, literals, parts, p.Match) {
			l.warn(Unreachable, c.Pos, "", "policy %s can never apply: %s is composed of %s, and what is asked of them makes another value",
				p.ID, c.Attribute, strings.Join(parts, " and "))
		}
	}
}

// overrides finds those that can never change a number.
func (l *linter) overrides(p *policy.Policy) {
	for i := range p.Overrides {
		o := &p.Overrides[i]
		if o.Expired(l.now) {
			l.warn(OverrideUnused, o.Pos, "remove it", "this override of policy %s ended at %s", p.ID, o.Until.Format(time.RFC3339))
			continue
		}
		for j := range o.Match {
			if c := condition(p.Match, o.Match[j].Attribute); c != nil && disjoint(p, c, &o.Match[j]) {
				l.warn(OverrideUnused, o.Match[j].Pos, "", "this override can never apply: policy %s is for other values of %s", p.ID, c.Attribute)
			}
		}
		for j := range p.Overrides[:i] {
			if first := &p.Overrides[j]; l.covers(p, first, o) {
				l.warn(OverrideUnused, o.Pos, "the first that matches wins: put the narrower one first",
					"this override of policy %s is never reached: the one in line %d takes all of its requests", p.ID, first.Pos.Line)
				break
			}
		}
	}
}

// covers reports whether first takes every request that later is for, as long as later lasts.
func (l *linter) covers(p *policy.Policy, first, later *policy.Override) bool {
	if first.Expired(l.now) || !first.Until.IsZero() && (later.Until.IsZero() || later.Until.After(first.Until)) {
		return false
	}
	for i := range first.Match {
		a := &first.Match[i]
		b := condition(later.Match, a.Attribute)
		if b == nil {
			b = condition(p.Match, a.Attribute) // met by every request of the policy
		}
		if b == nil || !implies(p, b, a) {
			return false
		}
	}
	return true
}

// share finds a limit of which some instances would get nothing while the store fails.
func (l *linter) share(p *policy.Policy, instances int) {
	if p.OnStoreFailure != policy.Local || instances < 2 {
		return
	}
	small := func(pos policy.Position, what string, n *policy.Numbers) {
		if 0 < n.Capacity && n.Capacity < float64(instances) {
			l.warn(LocalShare, pos, "raise it, or use onStoreFailure: open or closed",
				"%s %s of policy %s is less than the %d instances: while the store fails, some of them admit nothing",
				limitWord(n), policy.FormatNumber(n.Capacity)+what, p.ID, instances)
		}
	}
	small(p.Pos, "", &p.Numbers)
	for i := range p.Overrides {
		if o := &p.Overrides[i]; !o.Expired(l.now) {
			small(o.Pos, " in an override", &o.Numbers)
		}
	}
}

func limitWord(n *policy.Numbers) string {
	if n.Kind == algorithm.SlidingLog {
		return "limit"
	}
	return "capacity"
}

// against finds policies that keep their id and change their algorithm.
func (l *linter) against(texts []policy.Text) error {
	if len(texts) == 0 {
		return nil
	}
	old, err := policy.LoadTexts(texts...)
	if err != nil {
		return err
	}
	for _, was := range old.Policies() {
		for _, p := range l.set.Policies() {
			if p.ID == was.ID && p.Numbers.Kind != was.Numbers.Kind {
				l.warn(AlgorithmChanged, p.Pos, "a new id starts with full buckets",
					"policy %s changes from %s to %s: its buckets keep the share that is used up, rounded up", p.ID, was.Numbers.Kind, p.Numbers.Kind)
			}
		}
	}
	return nil
}
