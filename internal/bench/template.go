package bench

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// Template is an entry's value, with places for what differs from call to call.
type Template struct {
	source string
	parts  []part
}

// part is a literal text, or a number made of the key's: (key * mul + add) % mod.
type part struct {
	text          string
	run           bool // the name of the run
	number        bool
	mul, add, mod uint64 // mod 0: none
}

var place = regexp.MustCompile(`^key(?:\*([0-9]{1,9}))?(?:\+([0-9]{1,9}))?(?:%([0-9]{1,9}))?$`)

// ParseTemplate reads a value such as "k{key}", "t{key%1000}", "k{key*50+7}" or "{run}-{key}", where key is the number of the key drawn and run a
// name that no other run of the benchmark has. {{ stands for a brace.
func ParseTemplate(text string) (Template, error) {
	t := Template{source: text}
	rest := text
	for rest != "" {
		literal, after, found := strings.Cut(rest, "{")
		if found && strings.HasPrefix(after, "{") {
			t.add(part{text: literal + "{"})
			rest = after[1:]
			continue
		}
		t.add(part{text: literal})
		if !found {
			break
		}
		name, behind, closed := strings.Cut(after, "}")
		if !closed {
			return t, fmt.Errorf("%q: the brace is not closed", text)
		}
		p, err := parsePlace(name)
		if err != nil {
			return t, err
		}
		t.add(p)
		rest = behind
	}
	return t, nil
}

func (t *Template) add(p part) {
	if p.text != "" || p.number || p.run {
		t.parts = append(t.parts, p)
	}
}

func parsePlace(name string) (part, error) {
	if name == "run" {
		return part{run: true}, nil
	}
	found := place.FindStringSubmatch(name)
	if found == nil {
		return part{}, fmt.Errorf("{%s}: want {key}, {key%%1000}, {key*50+7} or {run}", name)
	}
	p := part{number: true, mul: 1}
	for i, to := range []*uint64{&p.mul, &p.add, &p.mod} {
		if text := found[i+1]; text != "" {
			*to, _ = strconv.ParseUint(text, 10, 64) // digits, nine at most
		}
	}
	if p.mul == 0 || found[3] != "" && p.mod == 0 {
		return part{}, fmt.Errorf("{%s}: times or modulo nothing", name)
	}
	return p, nil
}

// String is the template as it is written.
func (t Template) String() string { return t.source }

// Append appends the value for a key.
func (t Template) Append(buf []byte, run string, key uint64) []byte {
	for i := range t.parts {
		p := &t.parts[i]
		switch {
		case p.number:
			n := key*p.mul + p.add
			if p.mod > 0 {
				n %= p.mod
			}
			buf = strconv.AppendUint(buf, n, 10)
		case p.run:
			buf = append(buf, run...)
		default:
			buf = append(buf, p.text...)
		}
	}
	return buf
}
