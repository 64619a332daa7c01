package policy

import (
	"bytes"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// NodeKind says what a [Node] is.
type NodeKind uint8

// The kinds of nodes.
const (
	Null    NodeKind = iota + 1 // nothing stands where a value could
	Scalar                      // a single value
	Mapping                     // name: value, any number of times
	List                        // values
)

// String names the kind as faults do.
func (k NodeKind) String() string {
	switch k {
	case Scalar:
		return "a single value"
	case Mapping:
		return "a mapping"
	case List:
		return "a list"
	default:
		return "nothing"
	}
}

// Node is a part of a YAML document that goes with policies, such as their tests or Envoy's configuration. The methods of a nil Node find nothing.
type Node struct {
	Kind   NodeKind
	Pos    Position
	Text   string  // of a Scalar, as it is written
	Items  []*Node // of a List
	Fields []Field // of a Mapping, in order; a name that is written twice has two
}

// Field is one line of a mapping.
type Field struct {
	Name  string
	Pos   Position // of the name
	Value *Node    // never nil
}

// Get gives the value of the first of the fields by these names; nil if there is none.
func (n *Node) Get(names ...string) *Node {
	for _, name := range names {
		var next *Node
		if n != nil {
			for _, f := range n.Fields {
				if f.Name == name {
					next = f.Value
					break
				}
			}
		}
		n = next
	}
	return n
}

// String is the text of a scalar, empty for anything else.
func (n *Node) String() string {
	if n == nil || n.Kind != Scalar {
		return ""
	}
	return n.Text
}

// CheckFields tells what keeps n from being a mapping of known names, each at most once. what is what n describes, such as "a test".
func (n *Node) CheckFields(what string, known []string) Faults {
	if n.Kind != Mapping {
		return Faults{newFault(n.Pos, "", "%s is written as name: value, not as %s", what, n.Kind)}
	}
	var faults Faults
	seen := map[string]bool{}
	for _, f := range n.Fields {
		switch {
		case !slices.Contains(known, f.Name):
			hint := DidYouMean(f.Name, known)
			if hint == "" {
				hint = "the fields are " + strings.Join(known, ", ")
			}
			faults = append(faults, newFault(f.Pos, hint, "%s has no field %q", what, f.Name))
		case seen[f.Name]:
			faults = append(faults, newFault(f.Pos, "", "%q is written twice", f.Name))
		}
		seen[f.Name] = true
	}
	return faults
}

// ParseDocument reads one YAML document as [Parse] does: one file, text, of a shape that can be read safely. aliases allows what
// policy files do without: anchors, aliases and merge keys. The error is of type [Faults].
func ParseDocument(text Text, aliases bool) (*Node, error) {
	file := &File{Path: text.Path, source: bytes.TrimPrefix(text.Data, byteOrderMark)}
	l := &loader{path: text.Path, aliases: aliases}
	var root *Node
	if len(text.Data) > maxFileBytes {
		l.fault(Position{File: text.Path}, "", "larger than %d MiB", maxFileBytes>>20)
	} else if body, ok := l.document(file.source); ok {
		t := tree{loader: l, anchors: map[string]ast.Node{}}
		root = t.node(body)
	}
	if err := quoted(l.faults, file); err != nil {
		return nil, err
	}
	return root, nil
}

// Quote puts faults that somebody else has found in order and gives them their lines of texts. Nil if there are none.
func Quote(faults Faults, texts ...Text) error {
	files := make([]*File, len(texts))
	for i, t := range texts {
		files[i] = &File{Path: t.Path, source: bytes.TrimPrefix(t.Data, byteOrderMark)}
	}
	return quoted(faults, files...)
}

// maxNodes is how many nodes a document may have once its aliases are followed.
const maxNodes = 1_000_000

// tree turns what the YAML library has read into nodes.
type tree struct {
	loader  *loader
	anchors map[string]ast.Node
	nodes   int
	depth   int
}

func (t *tree) node(of ast.Node) *Node {
	n := &Node{Kind: Null, Pos: t.loader.pos(of)}
	if t.nodes++; t.nodes > maxNodes || t.depth > 2*maxDepth {
		if len(t.loader.faults) == 0 {
			t.loader.fault(n.Pos, "", "aliases make the file too large")
		}
		return n
	}
	t.depth++
	defer func() { t.depth-- }()
	switch v := of.(type) {
	case *ast.AnchorNode:
		inner := t.node(v.Value)
		t.anchors[v.Name.GetToken().Value] = v.Value // from here on: none holds itself
		return inner
	case *ast.AliasNode:
		if to, ok := t.anchors[v.Value.GetToken().Value]; ok {
			return t.node(to)
		}
		t.loader.fault(n.Pos, "", "there is no anchor %q before", v.Value.GetToken().Value)
	case *ast.TagNode:
		return t.node(v.Value)
	case *ast.MappingNode:
		t.fields(n, v.Values)
	case *ast.MappingValueNode:
		t.fields(n, []*ast.MappingValueNode{v})
	case *ast.SequenceNode:
		n.Kind = List
		for _, item := range v.Values {
			n.Items = append(n.Items, t.node(item))
		}
	default:
		if text, ok := scalar(of); ok {
			n.Kind, n.Text = Scalar, text
		}
	}
	return n
}

func (t *tree) fields(n *Node, fields []*ast.MappingValueNode) {
	n.Kind = Mapping
	var merged []Field
	for _, field := range fields {
		value := t.node(field.Value)
		if _, ok := field.Key.(*ast.MergeKeyNode); ok {
			for _, from := range append([]*Node{value}, value.Items...) {
				merged = append(merged, from.Fields...)
			}
			continue
		}
		name, ok := scalar(field.Key)
		if !ok {
			t.loader.fault(t.loader.pos(field.Key), "", "a name that is not plain text")
			continue
		}
		n.Fields = append(n.Fields, Field{Name: name, Pos: t.loader.pos(field.Key), Value: value})
	}
	n.Fields = append(n.Fields, merged...) // the first of a name counts: what is written in n itself
}
