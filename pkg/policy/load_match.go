package policy

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
)

const matchExamples = `write a value, a list of values, "*" for any value, a prefix such as "GET /v1/*", or absent`

// conditions reads a match:
//
//	plan: free               this value
//	plan: [free, trial]      one of these
//	plan: "*"                any value, as long as there is one
//	route: "GET /v1/*"       a value that begins so
//	plan: absent             no value
//	plan: [absent]           the word absent; a list of one is taken literally, a star in it too
func (l *loader) conditions(f field) []Condition {
	lines, _ := l.mapping(f.value, f.name)
	conditions := make([]Condition, 0, len(lines))
	for _, line := range lines {
		if !l.attributeName(line.key, line.name) {
			continue
		}
		if c, ok := l.condition(line); ok {
			conditions = append(conditions, c)
		}
	}
	return conditions
}

func (l *loader) condition(line field) (Condition, bool) {
	c := Condition{Attribute: line.name, Kind: AnyOf, Pos: line.key}
	if list, ok := line.value.(*ast.SequenceNode); ok {
		c.Values = l.alternatives(line, list.Values)
		return c, len(c.Values) > 0
	}
	text, ok := scalar(line.value)
	switch {
	case !ok:
		l.fault(line.pos, matchExamples, "%s cannot be matched with %s", line.name, kindOf(line.value))
		return c, false
	case strings.Contains(strings.TrimSuffix(text, "*"), "*"):
		l.innerStar(line, line.pos)
		return c, false
	case text == "*":
		c.Kind = Present
	case text == "absent":
		c.Kind = Absent
	case strings.HasSuffix(text, "*"):
		c.Kind, c.Values = Prefix, []string{strings.TrimSuffix(text, "*")}
	default:
		c.Values = []string{text}
	}
	return c, true
}

// alternatives reads a list of values. In a list of several a star at the end is refused: it would be taken for a prefix by whoever
// wrote it, and match nothing.
func (l *loader) alternatives(line field, nodes []ast.Node) []string {
	if len(nodes) == 0 {
		l.fault(line.pos, matchExamples, "%s: no value is in an empty list", line.name)
	}
	values := make([]string, 0, len(nodes))
	for _, n := range nodes {
		text, ok := scalar(n)
		switch {
		case !ok:
			l.fault(l.pos(n), "", "a list holds values to compare with, not %s", kindOf(n))
		case len(nodes) > 1 && strings.HasSuffix(text, "*"):
			l.fault(l.pos(n), "write a policy for each prefix", "a list holds whole values: a star would make no prefix here")
		case len(nodes) > 1 && strings.Contains(text, "*"):
			l.innerStar(line, l.pos(n))
		default:
			values = append(values, text)
		}
	}
	return values
}

// innerStar leaves the value out of the message: it may be an API key.
func (l *loader) innerStar(line field, pos Position) {
	l.fault(pos, "to take a value literally write a list of one: "+line.name+`: ["…"]`, "a star stands only at the end of a value")
}
