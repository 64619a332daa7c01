package policylint

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// hashTags finds policies that one request can meet and whose buckets lie in different slots. Where one could lie with another, that is a warning.
func (l *linter) hashTags() {
	told := map[string]bool{}
	near := newNeighbours(l.set.Policies())
	for _, p := range l.set.Policies() {
		l.joinable(p, near.of(p))
		if told[p.Domain] {
			continue
		}
		told[p.Domain] = true
		if tags := l.tagsBeside(p.Domain, near); len(tags) > 1 {
			l.add(HashTags, Note, p.Pos, "", "requests are counted under the hash tags %s: on a cluster each is a call of its own", strings.Join(tags, ", "))
		}
	}
}

// joinable warns if p's buckets lie with none of its neighbours', and could.
func (l *linter) joinable(p *policy.Policy, neighbours []*policy.Policy) {
	var others []*policy.Policy
	for _, q := range neighbours {
		if p == q || q.Tag() == "" || !together(p, q) {
			continue
		}
		if p.Tag() == q.Tag() {
			return
		}
		others = append(others, q)
	}
	for _, q := range others {
		hint := ""
		switch {
		case slices.Contains(p.Key, q.Tag()):
			hint = "write hashTag: " + q.Tag()
		case slices.Equal(p.Key, []string{"apiKey"}) && p.HashTag == "" && q.Tag() == "tenant":
			hint = "write hashTag: tenant, if every API key belongs to one tenant"
		default:
			continue
		}
		l.warn(HashTags, p.Pos, hint, "policies %s and %s apply to one request and have the hash tags %s and %s: on a cluster that is a second call",
			p.ID, q.ID, p.Tag(), q.Tag())
		return
	}
}

// tagsBeside are the hash tags of a file's policies of which another policy, that can apply to the same request, has a different one.
func (l *linter) tagsBeside(domain string, near *neighbours) []string {
	var tags []string
	for _, p := range l.set.Policies() {
		beside := func(q *policy.Policy) bool { return p.Tag() != q.Tag() && q.Tag() != "" && together(p, q) }
		if p.Domain == domain && p.Tag() != "" && !slices.Contains(tags, p.Tag()) && slices.ContainsFunc(near.of(p), beside) {
			tags = append(tags, p.Tag())
		}
	}
	return tags
}

// together reports whether one request can meet both policies.
func together(p, q *policy.Policy) bool {
	if p.Domain != q.Domain && p.Domain != "" && q.Domain != "" {
		return false
	}
	for i := range p.Match {
		if c := condition(q.Match, p.Match[i].Attribute); c != nil && disjoint(p, &p.Match[i], c) && (p.Normalize == q.Normalize || disjoint(q, &p.Match[i], c)) {
			return false
		}
	}
	return true
}

// neighbours finds the policies that one request may meet together with another, so that ten thousand need not be compared with each other: those
// that ask for other values of the attribute which most policies ask for are left out.
type neighbours struct {
	attribute string
	byValue   map[string][]*policy.Policy // without regard to letter case
	rest      []*policy.Policy            // that do not ask for values of it
	all       []*policy.Policy
}

func newNeighbours(all []*policy.Policy) *neighbours {
	uses := map[string]int{}
	for _, p := range all {
		for i := range p.Match {
			if p.Match[i].Kind == policy.AnyOf {
				uses[p.Match[i].Attribute]++
			}
		}
	}
	n := &neighbours{byValue: map[string][]*policy.Policy{}, all: all}
	for _, attribute := range slices.Sorted(maps.Keys(uses)) {
		if cmp.Less(uses[n.attribute], uses[attribute]) {
			n.attribute = attribute
		}
	}
	for _, p := range all {
		values := n.values(p)
		for _, v := range values {
			n.byValue[v] = append(n.byValue[v], p)
		}
		if len(values) == 0 {
			n.rest = append(n.rest, p)
		}
	}
	return n
}

// values are those that p asks for; none if it takes others, too.
func (n *neighbours) values(p *policy.Policy) []string {
	c := condition(p.Match, n.attribute)
	if c == nil || c.Kind != policy.AnyOf {
		return nil
	}
	list := make([]string, len(c.Values))
	for i, v := range c.Values {
		list[i] = strings.ToLower(v)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// of gives p's, p included. One may come several times.
func (n *neighbours) of(p *policy.Policy) []*policy.Policy {
	values := n.values(p)
	if len(values) == 0 {
		return n.all
	}
	list := slices.Clone(n.rest)
	for _, v := range values {
		list = append(list, n.byValue[v]...)
	}
	return list
}
