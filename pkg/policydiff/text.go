package policydiff

import (
	"fmt"
	"strings"
)

// String tells a person, in lines that each end with a new line.
func (d *Diff) String() string {
	if d.Empty() {
		return "no policy differs\n"
	}
	var b strings.Builder
	b.WriteString(d.Summary() + "\n")
	for _, c := range d.Files {
		b.WriteString("\n")
		c.write(&b, "")
	}
	for i := range d.Policies {
		b.WriteString("\n")
		d.Policies[i].write(&b)
	}
	return b.String()
}

// Summary tells in one line how many policies differ, and how.
func (d *Diff) Summary() string {
	kinds, verdicts := map[Kind]int{}, map[Verdict]int{}
	for i := range d.Policies {
		kinds[d.Policies[i].Kind]++
		verdicts[d.Policies[i].Verdict]++
	}
	var parts []string
	for _, kind := range []Kind{Added, Changed, Removed} {
		if n := kinds[kind]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "no policy differs by itself")
	}
	text, sep := strings.Join(parts, ", "), ": "
	for _, v := range []Verdict{Stricter, Looser, Both} {
		if n := verdicts[v]; n > 0 {
			text += fmt.Sprintf("%s%d %s", sep, n, v.words())
			sep = ", "
		}
	}
	return text
}

// words is the verdict for people.
func (v Verdict) words() string {
	if v == Both {
		return "stricter for some and looser for others"
	}
	return string(v)
}

func (p *Policy) write(b *strings.Builder) {
	sign := map[Kind]string{Added: "+", Removed: "-", Changed: "~"}[p.Kind]
	fmt.Fprintf(b, "%s %s  %s, %s\n", sign, p.ID, p.Kind, p.Verdict.words())
	if p.Summary != "" {
		fmt.Fprintf(b, "    %s\n", p.Summary)
	}
	if p.Renamed != "" {
		fmt.Fprintf(b, "    the same as %s, which is removed\n", p.Renamed)
	}
	for _, c := range p.Changes {
		c.write(b, "    ")
	}
	if p.Anew {
		b.WriteString("    buckets start anew: each is full at first\n")
	}
}

func (c *Change) write(b *strings.Builder, indent string) {
	fmt.Fprintf(b, "%s%s: ", indent, c.Field)
	switch {
	case c.From == "":
		fmt.Fprintf(b, "%s (new)", c.To)
	case c.To == "":
		fmt.Fprintf(b, "%s (gone)", c.From)
	default:
		fmt.Fprintf(b, "%s -> %s", c.From, c.To)
	}
	if c.Verdict != Neutral {
		b.WriteString("  " + c.Verdict.words())
	}
	if c.Note != "" {
		b.WriteString("  # " + c.Note)
	}
	b.WriteString("\n")
}
