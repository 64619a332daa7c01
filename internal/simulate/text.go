package simulate

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// WriteText writes the report for people.
func (r *Report) WriteText(out io.Writer) error {
	var t text
	t.lines(r)
	t.policies(r)
	t.keys(r)
	t.suggestions(r)
	_, err := io.WriteString(out, t.String())
	return err
}

type text struct{ strings.Builder }

func (t *text) line(format string, args ...any) { fmt.Fprintf(t, format+"\n", args...) }

// table writes rows in columns; cells are divided by tabs.
func (t *text) table(rows []string) {
	w := tabwriter.NewWriter(t, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		_, _ = fmt.Fprintln(w, row) // into memory
	}
	_ = w.Flush()
}

func (t *text) lines(r *Report) {
	t.line("%s replayed, %s to %s, policy set %s", counted(r.Lines.Replayed, "request", "requests"), r.From.Format(time.RFC3339), r.To.Format(time.RFC3339), r.Version)
	t.line("%s would have been denied (%s)", counted(r.Denied, "request", "requests"), Percent(share(r.Denied, r.Lines.Replayed)))
	if n := r.Lines.DeniedBefore; n > 0 {
		t.line("%s had been denied when the log was written (status 429)", counted(n, "request", "requests"))
	}
	if n := r.Lines.Skipped; n > 0 {
		t.line("%s left out: denied when the log was written (status 429)", counted(n, "line", "lines"))
	}
	if n := r.Lines.Late; n > 0 {
		t.line("%s too far out of order to be put in order: taken for later than the log says (--reorder)", counted(n, "line", "lines"))
	}
	if n := r.Lines.Bad; n > 0 {
		t.line("%s could not be read:", counted(n, "line", "lines"))
		for _, b := range r.BadLines {
			t.line("  line %d %s", b.Line, b.Why)
		}
		if n > int64(len(r.BadLines)) {
			t.line("  …")
		}
	}
	if len(r.UnusedFields) > 0 {
		t.line("no policy has a use for: %s", strings.Join(r.UnusedFields, ", "))
	}
	if r.Forgotten > 0 {
		t.line("%s forgotten for want of room: their keys began anew", counted(int64(r.Forgotten), "bucket was", "buckets were"))
	}
}

func (t *text) policies(r *Report) {
	rows := []string{"policy\trequests\tdenied\tshare\tkeys\tdenials per key: p50\tp99\tmax"}
	var notes, idle []string
	for i := range r.Policies {
		p := &r.Policies[i]
		notes = append(notes, p.notes()...)
		if p.Requests == 0 {
			idle = append(idle, p.ID)
			continue
		}
		name := p.ID
		if p.Shadow {
			name += " (shadow)"
		}
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%s\t%d\t%d\t%d\t%d", name, p.Requests, p.Denied, Percent(share(p.Denied, p.Requests)),
			p.Keys, p.DenialsPerKey.P50, p.DenialsPerKey.P99, p.DenialsPerKey.Max))
	}
	t.line("")
	if len(rows) > 1 {
		t.table(rows)
	}
	if len(idle) > 0 {
		t.line("no request for: %s", strings.Join(idle, ", "))
	}
	for _, n := range notes {
		t.line("%s", n)
	}
}

// notes say what the numbers of a policy's row leave out.
func (p *PolicyReport) notes() (notes []string) {
	note := func(n int64, one, many string) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf("%s: %s", p.ID, counted(n, one, many)))
		}
	}
	note(p.Never, "denial is for ever: it costs more than a bucket holds, or lacks a key", "denials are for ever: they cost more than a bucket holds, or lack a key")
	note(p.Skipped, "request lacks the key, and is not limited", "requests lack the key, and are not limited")
	note(p.Overridden, "request was decided by an override's numbers", "requests were decided by an override's numbers")
	note(p.Uncounted, "request is not counted by key, for want of room", "requests are not counted by key, for want of room")
	return notes
}

func (t *text) keys(r *Report) {
	if len(r.TopKeys) == 0 {
		return
	}
	rows := []string{"most hit keys\tpolicy\trequests\tdenied"}
	for _, k := range r.TopKeys {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%d\t%d", k.Key, k.Policy, k.Requests, k.Denied))
	}
	t.line("")
	t.table(rows)
}

func (t *text) suggestions(r *Report) {
	rows := []string{"policy\t\tnumbers\tdenies"}
	var notes []string
	for i := range r.Policies {
		g := r.Policies[i].Suggestion
		if g == nil {
			continue
		}
		add := func(name, what string, v *Variant) {
			if v != nil {
				rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s", name, what, v, Percent(v.DenyShare)))
			}
		}
		add(r.Policies[i].ID, "now", &g.Now)
		add("", "other "+g.Now.what(), g.Capacity)
		add("", "other refill", g.Refill)
		add("", "both", g.Both)
		if g.KeptKeys < 1 {
			notes = append(notes, fmt.Sprintf("%s: an estimate, from 1 in %.0f keys", r.Policies[i].ID, 1/g.KeptKeys))
		}
		if g.Cut {
			notes = append(notes, fmt.Sprintf("%s: from the first %s only", r.Policies[i].ID, counted(g.Requests, "request", "requests")))
		}
	}
	if len(rows) == 1 {
		return
	}
	t.line("\nsmallest numbers that deny at most %s, each policy by itself", Percent(r.DenyShare))
	t.table(rows)
	for _, n := range notes {
		t.line("%s", n)
	}
}

// what a policy file calls the capacity.
func (v *Variant) what() string {
	if v.Window != "" {
		return "limit"
	}
	return "capacity"
}

// String gives the numbers in the words of policy files.
func (v *Variant) String() string {
	if v.Window != "" {
		return fmt.Sprintf("limit %s, window %s", policy.FormatNumber(v.Capacity), v.Window)
	}
	return fmt.Sprintf("capacity %s, refillPer%s %s", policy.FormatNumber(v.Capacity), v.Unit, policy.FormatNumber(v.Refill))
}

func share(part, all int64) float64 {
	if all == 0 {
		return 0
	}
	return float64(part) / float64(all)
}

// Percent writes a share with four significant digits.
func Percent(share float64) string { return strconv.FormatFloat(share*100, 'g', 4, 64) + "%" }

func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
