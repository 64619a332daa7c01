package policy

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
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
	before := []rune(f.Source)
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return r
		}
		return ' '
	}, string(before[:min(f.caret, len(before))]))
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

// maxFaults is how many faults are told at once. A file of another kind altogether can have one in every word.
const maxFaults = 100

// add appends faults, and a word that there are more in place of all beyond maxFaults.
func (fs *Faults) add(faults ...Fault) {
	for _, f := range faults {
		switch len(*fs) {
		default:
			*fs = append(*fs, f)
		case maxFaults:
			*fs = append(*fs, Fault{Pos: Position{File: f.Pos.File}, Message: fmt.Sprintf("too many faults: these are the first %d", maxFaults)})
		case maxFaults + 1:
			return
		}
	}
}

// quoted puts faults in order, gives them their source lines and returns them as an error, which is nil if there are none.
func quoted(faults Faults, files ...*File) error {
	if len(faults) == 0 {
		return nil
	}
	faults.sort()
	var q quoter
	for i := range faults {
		if f := &faults[i]; f.Pos.Line > 0 && f.Source == "" {
			f.quote(q.line(f.Pos, files))
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

// quoter finds source lines. It keeps the last one, since all faults of a file may be in one line of many megabytes.
type quoter struct {
	file   string
	number int
	text   []rune
	lines  [][]byte
}

// line gives the line at pos. It is empty if there is none, or if a terminal would not just print it.
func (q *quoter) line(pos Position, files []*File) []rune {
	if pos.File != q.file {
		*q = quoter{file: pos.File}
		for _, f := range files {
			if f.Path == pos.File {
				q.lines = bytes.Split(f.source, []byte("\n"))
			}
		}
	}
	if pos.Line != q.number && pos.Line <= len(q.lines) {
		q.number, q.text = pos.Line, nil
		line := bytes.TrimRight(q.lines[pos.Line-1], "\r")
		if utf8.Valid(line) && !bytes.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
			q.text = []rune(masked(string(line)))
		}
	}
	if pos.Line != q.number {
		return nil
	}
	return q.text
}

// excerptWidth is how many characters of a long line are shown.
const excerptWidth = 120

// quote sets Source from the whole line and moves a column that points at a tab or behind the end to where it belongs.
func (f *Fault) quote(line []rune) {
	if len(line) == 0 {
		return
	}
	at := min(max(f.Pos.Column-1, 0), len(line))
	for at < len(line) && line[at] == '\t' {
		at++
	}
	f.Pos.Column = at + 1
	start, end := 0, len(line)
	if len(line) > excerptWidth {
		start = max(0, at-excerptWidth/2)
		end = min(len(line), start+excerptWidth)
	}
	f.Source, f.caret = string(line[start:end]), at-start
	if start > 0 {
		f.Source, f.caret = "…"+f.Source, f.caret+1
	}
	if end < len(line) {
		f.Source += "…"
	}
}

// apiKeyValue finds what is written for an API key: a value, or a list of them.
var apiKeyValue = regexp.MustCompile(`(?i)(\bapi[-_]?key["']?\s*:\s*)(\[[^\]]*\]?|"[^"]*"?|'[^']*'?|[^\s,}\]]+)`)

// masked is the line with every API key blotted out, as long as before: faults get into logs and status pages. The hash of a key
// stays.
func masked(line string) string {
	return apiKeyValue.ReplaceAllStringFunc(line, func(found string) string {
		at := apiKeyValue.FindStringSubmatchIndex(found)[4]
		if hashedAPIKey(strings.Trim(found[at:], `"'`)) {
			return found
		}
		return found[:at] + strings.Repeat("*", utf8.RuneCountInString(found[at:]))
	})
}
