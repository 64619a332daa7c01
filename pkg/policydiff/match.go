package policydiff

import (
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// A policy that is about more requests is stricter.
func reach(wider, narrower bool) Verdict {
	switch {
	case wider && narrower:
		return Neutral
	case wider:
		return Stricter
	case narrower:
		return Looser
	}
	return Both
}

func domainVerdict(from, to string) Verdict {
	return reach(to == "" || from == to, from == "" || from == to)
}

func compareMatch(from, to []policy.Condition) Verdict {
	return reach(covers(to, from), covers(from, to))
}

// covers reports whether wide holds for every request that narrow holds for.
func covers(wide, narrow []policy.Condition) bool {
	for _, w := range wide {
		implied := slices.ContainsFunc(narrow, func(n policy.Condition) bool { return n.Attribute == w.Attribute && implies(n, w) })
		if !implied {
			return false
		}
	}
	return true
}

// implies reports whether w holds wherever n does. Both are about the same attribute.
func implies(n, w policy.Condition) bool {
	switch w.Kind {
	case policy.Absent:
		return n.Kind == policy.Absent
	case policy.Present:
		return n.Kind != policy.Absent
	case policy.Prefix:
		return n.Kind != policy.Absent && len(n.Values) > 0 &&
			!slices.ContainsFunc(n.Values, func(v string) bool { return !strings.HasPrefix(v, w.Values[0]) })
	}
	return n.Kind == policy.AnyOf && !slices.ContainsFunc(n.Values, func(v string) bool { return !slices.Contains(w.Values, v) })
}

// matchText is a match in one line; empty if everything matches.
func matchText(match []policy.Condition) string {
	if len(match) == 0 {
		return ""
	}
	lines := make([]string, len(match))
	for i, c := range match {
		lines[i] = c.String()
	}
	slices.Sort(lines) // all must hold: their order means nothing
	return "{" + strings.Join(lines, ", ") + "}"
}
