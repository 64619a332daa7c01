package policy

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

var overrideFields = []string{
	"match", "capacity", "refillPerSecond", "refillPerMinute", "refillPerHour", "refillPerDay", "overdraft", "limit", "window",
	"comment", "until",
}

// overrides reads a policy's overrides; base are the policy's own numbers, which an override inherits.
func (l *loader) overrides(p *Policy, f field, kind algorithm.Kind, base numbers) []Override {
	nodes, _ := l.list(f, "overrides:\n  - {match: …, capacity: …, comment: …}")
	overrides := make([]Override, 0, len(nodes))
	for _, node := range nodes {
		overrides = append(overrides, l.override(p, node, kind, base))
	}
	return overrides
}

func (l *loader) override(p *Policy, node ast.Node, kind algorithm.Kind, base numbers) Override {
	v := Override{Pos: l.pos(node)}
	o, ok := l.object(node, "an override", overrideFields)
	if !ok {
		return v
	}
	l.overrideMatch(p, &v, &o)
	own := l.numbers(&o)
	l.belong(p, &o, kind)
	if !own.capacity.exists && !own.refill.exists && !own.overdraft.exists && !own.limit.exists && !own.window.exists && len(o.meant) == 0 {
		l.fault(o.pos, "", "an override changes at least one number")
	}
	v.Numbers = l.inForce(p, kind, base.over(own), own)

	l.missing(&o, "comment", "say why, and who asked for it")
	if comment, f, ok := l.text(&o, "comment"); ok {
		if v.Comment = strings.TrimSpace(comment); v.Comment == "" {
			l.fault(f.pos, "say why, and who asked for it", "comment is empty")
		}
	}
	if text, f, ok := l.text(&o, "until"); ok {
		until, ok := parseUntil(text)
		if v.Until = until; !ok {
			l.fault(f.pos, "write 2030-01-31 or 2030-01-31T18:00:00Z", "until is a date or a time, not %q", text)
		}
	}
	return v
}

// overrideMatch reads which requests an override is for. Only attributes that tell buckets apart may be named: with any other, one
// bucket would have two capacities.
func (l *loader) overrideMatch(p *Policy, v *Override, o *object) {
	l.missing(o, "match", "say which requests the override is for")
	f, ok := o.fields["match"]
	if !ok {
		return
	}
	before := len(l.faults)
	v.Match = l.conditions(f)
	if len(v.Match) == 0 && len(l.faults) == before {
		l.fault(f.pos, "", "the match of an override names at least one attribute")
	}
	allowed := slices.Clone(p.Key)
	if p.HashTag != "" && !slices.Contains(allowed, p.HashTag) {
		allowed = append(allowed, p.HashTag)
	}
	for _, c := range v.Match {
		switch {
		case !slices.Contains(allowed, c.Attribute):
			hint := "this policy counts all requests in one bucket"
			if len(allowed) > 0 {
				hint = "its buckets differ by " + strings.Join(allowed, ", ")
			}
			l.fault(c.Pos, hint, "an override cannot depend on %s, which is neither in key nor hashTag: one bucket would have two limits", c.Attribute)
		case c.Kind == Absent:
			l.fault(c.Pos, "", "a request without %s has no bucket: this override never applies", c.Attribute)
		}
	}
}
