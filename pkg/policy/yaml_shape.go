package policy

import "github.com/goccy/go-yaml/token"

// What a policy file may look like. No honest file comes near; beyond them the YAML library takes quadratic time, or so
// many stack frames that the process dies.
const (
	maxDepth    = 32   // collections inside each other
	maxSiblings = 2000 // keys of one mapping
	maxEmpty    = 2000 // places where a value should stand and none does
)

// shape follows the tokens of a document to find out how deep and how wide it is.
type shape struct {
	block    []level // collections written by indentation
	flow     []level // collections in brackets; keys and dashes are those since the last comma
	empty    int
	previous *token.Token
	opened   int // the column of the last key or dash
}

// level is a collection. If it is written by indentation, its keys or dashes stand in one column.
type level struct {
	column   int
	sequence bool
	keys     int
}

// checkShape notes faults for what policy files do without (anchors, aliases, merge keys, tags, directives, complex keys, several
// documents) and for what is too deep or too wide to be parsed safely, and reports whether there was none.
func (l *loader) checkShape(tokens token.Tokens) bool {
	s := &shape{}
	ended := false
	for _, t := range tokens {
		if t.Type == token.CommentType {
			continue
		}
		if message, hint := refusedToken(t); message != "" && !l.aliases {
			l.fault(l.tokenPos(t), hint, "%s", message)
		}
		if ended || t.Type == token.DocumentHeaderType && s.previous != nil {
			l.fault(l.tokenPos(t), "put each into a file of its own", "a policy file is one YAML document")
			return false
		}
		ended = t.Type == token.DocumentEndType
		if message := s.follow(t); message != "" {
			l.fault(l.tokenPos(t), "", "%s", message)
			return false
		}
		s.previous = t
	}
	return len(l.faults) == 0
}

func refusedToken(t *token.Token) (message, hint string) {
	switch t.Type {
	case token.AliasType:
		return "aliases are not supported in a policy file", `to match any value write "*" in quotes; a prefix has its star at the end: "gpt-*"`
	case token.AnchorType:
		return "anchors are not supported in a policy file", "repeat the value; quote a value that begins with &"
	case token.MergeKeyType:
		return "merge keys are not supported in a policy file", "repeat the fields"
	case token.TagType:
		return "tags are not supported in a policy file", "quote a value that begins with !"
	case token.DirectiveType:
		return "directives are not supported in a policy file", "quote a value that begins with %"
	case token.MappingKeyType:
		return "complex keys are not supported in a policy file", "quote a key that begins with ?"
	default:
		return "", ""
	}
}

// follow takes the next token and says what is wrong with the shape so far.
func (s *shape) follow(t *token.Token) string {
	if s.endsEmpty(t) {
		s.empty++
	}
	if s.empty > maxEmpty {
		return "too many fields without a value"
	}
	switch n := len(s.flow); t.Type {
	case token.MappingStartType, token.SequenceStartType:
		s.flow = append(s.flow, level{sequence: t.Type == token.SequenceStartType})
	case token.MappingEndType, token.SequenceEndType:
		s.flow = s.flow[:max(0, n-1)]
	case token.CollectEntryType:
		if n > 0 {
			s.flow[n-1].keys = 0
		}
	case token.SequenceEntryType, token.MappingValueType:
		return s.entry(t)
	default:
	}
	if len(s.flow)+len(s.block) > maxDepth {
		return "collections are nested too deeply"
	}
	return ""
}

// entry takes the dash of a sequence or the colon behind a mapping's key.
func (s *shape) entry(t *token.Token) string {
	sequence, column := t.Type == token.SequenceEntryType, t.Position.Column
	if !sequence && s.previous != nil {
		column = s.previous.Position.Column
	}
	s.opened = column
	if n := len(s.flow); n > 0 {
		if s.flow[n-1].keys++; s.flow[n-1].keys > maxDepth {
			return "a comma is missing in a list or mapping in brackets"
		}
		return ""
	}
	n := len(s.block)
	for ; n > 0; n-- {
		top := s.block[n-1]
		// A sequence may stand in the column of the key that it belongs to.
		if top.column < column || top.column == column && (top.sequence == sequence || sequence) {
			break
		}
	}
	s.block = s.block[:n]
	if n == 0 || s.block[n-1].column != column || s.block[n-1].sequence != sequence {
		s.block = append(s.block, level{column: column, sequence: sequence})
		n++
	}
	if s.block[n-1].keys++; !sequence && s.block[n-1].keys > maxSiblings {
		return "a mapping has too many keys"
	}
	if n > maxDepth {
		return "collections are nested too deeply"
	}
	return ""
}

// endsEmpty reports whether t shows that a value which should stand before it does not: the library inserts each such
// value into the list of all tokens.
func (s *shape) endsEmpty(t *token.Token) bool {
	p := s.previous
	if p == nil {
		return false
	}
	waits := p.Type == token.MappingValueType || p.Type == token.SequenceEntryType
	switch t.Type {
	case token.CollectEntryType, token.MappingEndType, token.SequenceEndType:
		n := len(s.flow)
		if p.Type == token.MappingStartType || p.Type == token.SequenceStartType {
			return false
		}
		return waits || p.Type == token.CollectEntryType || n > 0 && !s.flow[n-1].sequence && s.flow[n-1].keys == 0
	case token.MappingValueType:
		return waits || p.Type == token.CollectEntryType
	case token.SequenceEntryType:
		below := p.Type == token.MappingValueType && t.Position.Column == s.opened
		return waits && p.Position.Line != t.Position.Line && t.Position.Column <= s.opened && !below
	default:
		return waits && p.Position.Line != t.Position.Line && t.Position.Column <= s.opened
	}
}
