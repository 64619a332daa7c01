package policy

import (
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// field is one "name: value" of a mapping.
type field struct {
	name  string
	key   Position // of the name
	pos   Position // of the value
	value ast.Node
}

// object is a mapping whose names are known ones, each at most once.
type object struct {
	what   string // "a policy"
	pos    Position
	fields map[string]field
	// meant are names whose value is not known, though someone tried to write it: an unknown name is likely a misspelling of
	// them, or their value is. What depends on them is not judged.
	meant map[string]bool
}

// object reads node as a mapping of known names; unknown and repeated ones are faults. false: it is not a mapping.
func (l *loader) object(node ast.Node, what string, known []string) (object, bool) {
	o := object{what: what, pos: l.pos(node), meant: map[string]bool{}}
	fields, ok := l.mapping(node, what)
	o.fields = make(map[string]field, len(fields))
	for _, f := range fields {
		if !slices.Contains(known, f.name) {
			o.meant[nearest(f.name, known)] = true
			hint := DidYouMean(f.name, known)
			if hint == "" {
				hint = "the fields are " + strings.Join(known, ", ")
			}
			l.fault(f.key, hint, "%s has no field %q", what, f.name)
			continue
		}
		o.fields[f.name] = f
	}
	return o, ok
}

// mapping reads node as a mapping with any names. Of a repeated one the first counts.
func (l *loader) mapping(node ast.Node, what string) ([]field, bool) {
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		l.fault(l.pos(node), "", "%s is written as name: value, not as %s", what, kindOf(node))
		return nil, false
	}
	fields := make([]field, 0, len(values))
	first := make(map[string]Position, len(values))
	for _, v := range values {
		key := l.pos(v.Key)
		name, ok := scalar(v.Key)
		if !ok {
			l.fault(key, "", "%s has a name that is not plain text", what)
			continue
		}
		if at, repeated := first[name]; repeated {
			l.fault(key, "", "%q is written twice, first at %v", name, at)
			continue
		}
		first[name] = key
		fields = append(fields, field{name: name, key: key, pos: l.pos(v.Value), value: v.Value})
	}
	return fields, true
}

// list reads a field as a list.
func (l *loader) list(f field, example string) ([]ast.Node, bool) {
	n, ok := f.value.(*ast.SequenceNode)
	if !ok {
		l.fault(f.pos, "write "+example, "%s is a list, not %s", f.name, kindOf(f.value))
		return nil, false
	}
	return n.Values, true
}

// has reports whether the field is there, right or wrong.
func (o *object) has(name string) bool { _, ok := o.fields[name]; return ok }

// missing notes that a mandatory field is not there, unless a misspelling of it has been noted.
func (l *loader) missing(o *object, name, hint string) {
	if !o.has(name) && !o.meant[name] {
		l.fault(o.pos, hint, "%s needs %s", o.what, name)
	}
}

// text reads a field as text, which may be written as a number or a boolean. false: absent, or a fault was noted.
func (l *loader) text(o *object, name string) (string, field, bool) { return l.scalar(o, name, "text") }

// scalar gives a field's text as it is written; what says in a fault what it should be.
func (l *loader) scalar(o *object, name, what string) (string, field, bool) {
	f, ok := o.fields[name]
	if !ok {
		return "", f, false
	}
	s, ok := scalar(f.value)
	if !ok {
		l.fault(f.pos, "", "%s is %s, not %s", name, what, kindOf(f.value))
	}
	return s, f, ok
}

// choice is a word and what it stands for.
type choice[T any] struct {
	word  string
	means T
}

// choose reads a field whose value is one of some words. The zero T: absent, or a fault was noted.
func choose[T any](l *loader, o *object, name string, choices []choice[T]) (means T) {
	word, f, ok := l.text(o, name)
	if !ok {
		return means
	}
	words := make([]string, len(choices))
	for i, c := range choices {
		if c.word == word {
			return c.means
		}
		words[i] = c.word
	}
	o.meant[name] = true
	l.fault(f.pos, DidYouMean(meant(word, words), words), "%s cannot be %q: it is %s", name, word, oneOf(words))
	return means
}

// scalar gives the text of a scalar as it is written: "007" and 007 are the same, and so are "true" and true. false: node
// is null or a collection.
func scalar(node ast.Node) (string, bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, true
	default:
		return "", false
	}
}

// isQuoted reports whether node is text by the way it is written.
func isQuoted(node ast.Node) bool {
	t := node.GetToken().Type
	return t == token.SingleQuoteType || t == token.DoubleQuoteType || t == token.LiteralType || t == token.FoldedType
}

func kindOf(node ast.Node) string {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode:
		return "nothing"
	default:
		return "a single value"
	}
}
