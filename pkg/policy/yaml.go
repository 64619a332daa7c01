package policy

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// loader reads one policy file and collects its faults.
type loader struct {
	path    string
	faults  Faults
	aliases bool // anchors, aliases, merge keys and tags may be used
}

// fault notes a fault; hint may be empty.
func (l *loader) fault(pos Position, hint, format string, args ...any) {
	l.faults.add(newFault(pos, hint, format, args...))
}

func (l *loader) tokenPos(t *token.Token) Position {
	if t == nil || t.Position == nil {
		return Position{File: l.path}
	}
	return Position{File: l.path, Line: t.Position.Line, Column: max(t.Position.Column, 1)}
}

// pos is where node begins.
func (l *loader) pos(node ast.Node) Position {
	if m, ok := node.(*ast.MappingNode); ok && !m.IsFlowStyle && len(m.Values) > 0 {
		node = m.Values[0].Key
	}
	return l.tokenPos(node.GetToken())
}

// document gives the content of the one YAML document in data, and false (with a fault noted) if there is none.
func (l *loader) document(data []byte) (ast.Node, bool) {
	if !l.isText(data) {
		return nil, false
	}
	root, err := l.parseYAML(string(data))
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax):
		l.syntaxFault(syntax)
		return nil, false
	case err != nil:
		l.fault(Position{File: l.path}, "", "%v", err)
		return nil, false
	case len(l.faults) > 0:
		return nil, false
	case root == nil:
		l.fault(Position{File: l.path}, "a policy file has at least policies: []", "the file is empty")
		return nil, false
	}
	return root, true
}

// isText refuses what YAML does: bytes that are not UTF-8, and control characters. They are not quoted: a terminal may
// act on them.
func (l *loader) isText(data []byte) bool {
	line, lineStart := 1, 0
	for i := 0; i < len(data); {
		r, n := utf8.DecodeRune(data[i:])
		control := r < ' ' && r != '\n' && r != '\t' && r != '\r' || r >= 0x7f && r < 0xa0 && r != 0x85 || r == 0xfeff
		if control || r == utf8.RuneError && n == 1 {
			column := utf8.RuneCount(data[lineStart:i]) + 1
			l.fault(Position{l.path, line, column}, "", "not a text file: byte 0x%02x", data[i])
			return false
		}
		if i += n; r == '\n' {
			line, lineStart = line+1, i
		}
	}
	return true
}

// parseYAML gives the root of the document, nil if it is empty. The YAML library is known to recurse without bound and to
// take quadratic time on some input; checkShape refuses that. Should it still panic, that must not stop a service that is
// reloading its policies.
func (l *loader) parseYAML(text string) (root ast.Node, err error) {
	defer func() {
		if r := recover(); r != nil {
			root, err = nil, fmt.Errorf("the YAML library cannot read the file: %v", r)
		}
	}()
	tokens := lexer.Tokenize(text)
	if bad := tokens.InvalidToken(); bad == nil && !l.checkShape(tokens) {
		return nil, nil
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		return nil, err
	}
	for _, doc := range file.Docs {
		if doc.Body != nil && root != nil {
			l.fault(l.pos(doc.Body), "", "a policy file is one YAML document")
		} else if doc.Body != nil {
			root = doc.Body
		}
	}
	return root, nil
}

// syntaxFault words the library's error for people who write YAML once a year.
func (l *loader) syntaxFault(err yaml.Error) {
	pos, message, hint := l.tokenPos(err.GetToken()), err.GetMessage(), ""
	switch {
	case strings.Contains(message, "'\t' that cannot start any token"):
		message, hint = "a tab is not allowed here", "YAML is indented with spaces"
	case strings.Contains(message, "is not allowed in this context"):
		hint = "check the indentation of this line and the next, and quote values that contain a colon and a space"
	}
	l.fault(pos, hint, "not valid YAML: %s", message)
}
