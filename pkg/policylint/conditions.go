package policylint

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func sortByPlace(list []Finding) {
	slices.SortStableFunc(list, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Fault.Pos.Line, b.Fault.Pos.Line), cmp.Compare(a.Fault.Pos.Column, b.Fault.Pos.Column))
	})
}

// condition gives that on an attribute; nil if there is none.
func condition(list []policy.Condition, attribute string) *policy.Condition {
	for i := range list {
		if list[i].Attribute == attribute {
			return &list[i]
		}
	}
	return nil
}

// folded are the values of a condition as p compares them.
func folded(p *policy.Policy, c *policy.Condition) []string {
	if !p.Folds(c.Attribute) {
		return c.Values
	}
	list := make([]string, len(c.Values))
	for i, v := range c.Values {
		list[i] = strings.ToLower(v)
	}
	return list
}

// holdsFor reports whether value meets the condition.
func holdsFor(c *policy.Condition, values []string, value string) bool {
	switch c.Kind {
	case policy.Present:
		return true
	case policy.Prefix:
		return strings.HasPrefix(value, values[0])
	case policy.AnyOf:
		return slices.Contains(values, value)
	default:
		return false
	}
}

// disjoint reports whether no value, nor the want of one, meets both.
func disjoint(p *policy.Policy, a, b *policy.Condition) bool {
	if a.Kind == policy.Absent || b.Kind == policy.Absent {
		return a.Kind != b.Kind
	}
	if a.Kind == policy.Present || b.Kind == policy.Present {
		return false
	}
	x, y := folded(p, a), folded(p, b)
	if a.Kind == policy.Prefix && b.Kind == policy.Prefix {
		return !strings.HasPrefix(x[0], y[0]) && !strings.HasPrefix(y[0], x[0])
	}
	if a.Kind == policy.Prefix {
		a, x, y = b, y, x
	}
	other := b
	if a == b {
		other = &policy.Condition{Kind: policy.Prefix}
	}
	return !slices.ContainsFunc(x, func(v string) bool { return holdsFor(other, y, v) })
}

// implies reports whether whatever meets b meets a.
func implies(p *policy.Policy, b, a *policy.Condition) bool {
	if a.Kind == policy.Absent || b.Kind == policy.Absent {
		return a.Kind == b.Kind
	}
	if a.Kind == policy.Present {
		return true
	}
	x, y := folded(p, a), folded(p, b)
	switch b.Kind {
	case policy.AnyOf:
		return !slices.ContainsFunc(y, func(v string) bool { return !holdsFor(a, x, v) })
	case policy.Prefix:
		return a.Kind == policy.Prefix && strings.HasPrefix(y[0], x[0])
	default:
		return false
	}
}

// maxStarts bounds how many combinations of values are looked at.
const maxStarts = 10_000

// composable reports whether attributes that meet conditions can give, put together, a value that meets c.
func composable(c *policy.Condition, literals, parts []string, conditions []policy.Condition) bool {
	pattern := "(?s)^" + regexp.QuoteMeta(literals[0])
	start, known := literals[0], true
	starts := []string{start}
	present := true
	for i, part := range parts {
		own := condition(conditions, part)
		if own != nil && own.Kind == policy.Absent {
			return c.Kind == policy.Absent
		}
		present = present && own != nil
		pattern += partPattern(own) + regexp.QuoteMeta(literals[i+1])
		if known = known && own != nil && own.Kind == policy.AnyOf && len(starts)*len(own.Values) <= maxStarts; known {
			starts = extended(starts, own.Values, literals[i+1])
		}
	}
	switch c.Kind {
	case policy.Absent:
		return !present
	case policy.Prefix:
		return slices.ContainsFunc(starts, func(s string) bool {
			return strings.HasPrefix(s, c.Values[0]) || strings.HasPrefix(c.Values[0], s)
		})
	case policy.AnyOf:
		whole := regexp.MustCompile(pattern + "$")
		return slices.ContainsFunc(c.Values, whole.MatchString)
	default:
		return true
	}
}

func partPattern(c *policy.Condition) string {
	if c == nil || c.Kind == policy.Present {
		return ".*"
	}
	quoted := make([]string, len(c.Values))
	for i, v := range c.Values {
		quoted[i] = regexp.QuoteMeta(v)
	}
	pattern := "(?:" + strings.Join(quoted, "|") + ")"
	if c.Kind == policy.Prefix {
		pattern += ".*"
	}
	return pattern
}

func extended(starts, values []string, literal string) []string {
	var list []string
	for _, s := range starts {
		for _, v := range values {
			list = append(list, s+v+literal)
		}
	}
	return list
}
