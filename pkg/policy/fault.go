package policy

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Fault is one thing wrong with a policy file. It is an error by itself; [Parse] and [Load] return all of them as [Faults].
type Fault struct {
	// Pos is where the fault is. Without a line (0) it concerns the file as a whole.
	Pos Position
	// Message says what is wrong.
	Message string
	// Hint says what to write instead; empty if there is no good guess.
	Hint string
	// Source is the line at Pos, without its end; of a long line the part around Pos. Empty if there is none to show.
	Source string

	caret int // how many characters of Source stand before the place meant
	cause error
}

// newFault makes a fault at pos. Its Source is filled in by quoted.
func newFault(pos Position, hint, format string, args ...any) Fault {
	return Fault{Pos: pos, Hint: hint, Message: fmt.Sprintf(format, args...)}
}

// Error gives "file:line:column: message (hint)" and, on two more lines, the source line and a caret below the place.
func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.Pos.File)
	if f.Pos.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", f.Pos.Line, f.Pos.Column)
	}
	b.WriteString(": " + f.Message)
	if f.Hint != "" {
		b.WriteString(" (" + f.Hint + ")")
	}
	if f.Source != "" {
		b.WriteString("\n" + f.Source + "\n" + f.indent() + "^")
	}
	return b.String()
}

// indent is as wide as what stands before the caret: tabs stay tabs, so that the caret is below its character
// however wide a terminal shows them.
func (f Fault) indent() string {
	var b strings.Builder
	for i, r := range []rune(f.Source) {
		switch {
		case i >= f.caret:
			return b.String()
		case r == '\t':
			b.WriteByte('\t')
		default:
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// Unwrap gives the error of the file system behind the fault, if there is one.
func (f Fault) Unwrap() error { return f.cause }

// Faults are all that is wrong with some policy files, in the order of files and lines. Never empty when returned.
type Faults []Fault

// Error gives one fault after the other.
func (fs Faults) Error() string {
	texts := make([]string, len(fs))
	for i, f := range fs {
		texts[i] = f.Error()
	}
	return strings.Join(texts, "\n")
}

// Unwrap gives the single faults.
func (fs Faults) Unwrap() []error {
	errs := make([]error, len(fs))
	for i, f := range fs {
		errs[i] = f
	}
	return errs
}

// quoted puts faults in order, gives them their source lines and returns them as an error, which is nil if there are none.
func quoted(faults Faults, files ...*File) error {
	if len(faults) == 0 {
		return nil
	}
	faults.sort()
	lines := make(map[string][][]byte, len(files))
	for i := range faults {
		f := &faults[i]
		if f.Pos.Line == 0 || f.Source != "" {
			continue
		}
		if _, ok := lines[f.Pos.File]; !ok {
			lines[f.Pos.File] = sourceLines(f.Pos.File, files)
		}
		if ls := lines[f.Pos.File]; f.Pos.Line <= len(ls) {
			f.quote(ls[f.Pos.Line-1])
		}
	}
	return faults
}

// sort keeps the order in which files first appear and sorts the faults of each by place.
func (fs Faults) sort() {
	rank := map[string]int{}
	for _, f := range fs {
		if _, ok := rank[f.Pos.File]; !ok {
			rank[f.Pos.File] = len(rank)
		}
	}
	slices.SortStableFunc(fs, func(a, b Fault) int {
		return cmp.Or(
			cmp.Compare(rank[a.Pos.File], rank[b.Pos.File]),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Column, b.Pos.Column),
		)
	})
}

func sourceLines(path string, files []*File) [][]byte {
	for _, f := range files {
		if f.Path == path {
			return bytes.Split(f.source, []byte("\n"))
		}
	}
	return nil
}

// excerptWidth is how many characters of a long line are shown.
const excerptWidth = 120

// quote sets Source from the whole line and moves a column that points at a tab or behind the end to where it belongs.
func (f *Fault) quote(line []byte) {
	line = bytes.TrimRight(line, "\r")
	if !utf8.Valid(line) {
		return
	}
	runes := []rune(string(line))
	at := min(max(f.Pos.Column-1, 0), len(runes))
	for at < len(runes) && runes[at] == '\t' {
		at++
	}
	f.Pos.Column = at + 1
	start, end := 0, len(runes)
	if len(runes) > excerptWidth {
		start = max(0, at-excerptWidth/2)
		end = min(len(runes), start+excerptWidth)
	}
	f.Source, f.caret = string(runes[start:end]), at-start
	if start > 0 {
		f.Source, f.caret = "…"+f.Source, f.caret+1
	}
	if end < len(runes) {
		f.Source += "…"
	}
}
