// Package policydiff tells a person how two states of the policies differ: which policies, which of their numbers, and whether clients get less
// (stricter) or more (looser).
package policydiff

import (
	"cmp"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Verdict says what a change does to clients.
type Verdict string

// The verdicts.
const (
	Neutral  Verdict = "neutral"  // decides nothing
	Stricter Verdict = "stricter" // fewer requests are let through
	Looser   Verdict = "looser"   // more requests are let through
	Both     Verdict = "both"     // stricter for some, looser for others, or nobody can tell
)

// and is the verdict of two changes together.
func (v Verdict) and(w Verdict) Verdict {
	switch {
	case v == w || w == Neutral:
		return v
	case v == Neutral:
		return w
	}
	return Both
}

// opposite is the verdict of undoing a change.
func (v Verdict) opposite() Verdict {
	switch v {
	case Stricter:
		return Looser
	case Looser:
		return Stricter
	}
	return v
}

// more is the verdict of a number that lets more through the larger it is.
func more[T cmp.Ordered](from, to T) Verdict {
	switch cmp.Compare(to, from) {
	case 1:
		return Looser
	case -1:
		return Stricter
	}
	return Neutral
}

// Kind says what has become of a policy.
type Kind string

// The kinds.
const (
	Added   Kind = "added"
	Removed Kind = "removed"
	Changed Kind = "changed"
)

// Diff is how two states of the policies differ.
type Diff struct {
	// Policies are those that differ: in the order of the new state, then those removed in the order of the old one.
	Policies []Policy `json:"policies"`
	// Files are differences of what the policies of a file have in common: domain apart, ipv6Prefix and attributes.
	Files []Change `json:"files"`
}

// Policy is a policy that differs.
type Policy struct {
	ID      string  `json:"id"`
	Kind    Kind    `json:"kind"`
	Verdict Verdict `json:"verdict"`
	// Summary tells of the whole policy if it was added or removed.
	Summary string `json:"summary,omitempty"`
	// Changes are its fields that differ, if it was changed.
	Changes []Change `json:"changes,omitempty"`
	// Anew is whether its buckets start full, since they are others than before.
	Anew bool `json:"anew,omitempty"`
	// Renamed is the id of a removed policy that is the same otherwise.
	Renamed string `json:"renamed,omitempty"`
}

// Change is a field that differs, in the words of policy files. From or To is empty if there is nothing.
type Change struct {
	Field   string  `json:"field"`
	From    string  `json:"from"`
	To      string  `json:"to"`
	Verdict Verdict `json:"verdict"`
	Note    string  `json:"note,omitempty"`
}

// Empty reports whether nothing differs.
func (d *Diff) Empty() bool { return len(d.Policies)+len(d.Files) == 0 }

// Verdict is that of all differences together.
func (d *Diff) Verdict() Verdict {
	v := Neutral
	for i := range d.Policies {
		v = v.and(d.Policies[i].Verdict)
	}
	for i := range d.Files {
		v = v.and(d.Files[i].Verdict)
	}
	return v
}

// Compare tells how to differs from from. Each must have been made a set by policy.NewSet. Overrides that have expired at now decide nothing.
func Compare(from, to []*policy.File, now time.Time) *Diff {
	d := &Diff{Policies: []Policy{}, Files: compareFiles(from, to)}
	before, after := byID(from), byID(to)
	for _, p := range all(to) {
		old, ok := before[p.ID]
		if !ok {
			d.Policies = append(d.Policies, whole(p, Added))
			continue
		}
		if c := comparePolicy(old, p, now); len(c.Changes) > 0 {
			d.Policies = append(d.Policies, c)
		}
	}
	for _, p := range all(from) {
		if _, ok := after[p.ID]; !ok {
			d.Policies = append(d.Policies, whole(p, Removed))
		}
	}
	d.findRenamed(before, after, now)
	return d
}

func all(files []*policy.File) (list []*policy.Policy) {
	for _, f := range files {
		list = append(list, f.Policies...)
	}
	return list
}

func byID(files []*policy.File) map[string]*policy.Policy {
	m := map[string]*policy.Policy{}
	for _, p := range all(files) {
		m[p.ID] = p
	}
	return m
}

// whole tells of a policy that only one side has. A shadow decides nothing.
func whole(p *policy.Policy, kind Kind) Policy {
	verdict := Stricter
	if p.Mode == policy.Shadow {
		verdict = Neutral
	}
	if kind == Removed {
		verdict = verdict.opposite()
	}
	return Policy{ID: p.ID, Kind: kind, Verdict: verdict, Summary: summary(p)}
}

// findRenamed pairs added policies with removed ones that are the same but for id and name. What such a pair does to clients is only that its
// buckets start anew.
func (d *Diff) findRenamed(before, after map[string]*policy.Policy, now time.Time) {
	gone := map[string][]*Policy{} // by summary
	for i := range d.Policies {
		if p := &d.Policies[i]; p.Kind == Removed {
			gone[p.Summary] = append(gone[p.Summary], p)
		}
	}
	for i := range d.Policies {
		added := &d.Policies[i]
		if added.Kind != Added {
			continue
		}
		candidates := gone[added.Summary]
		for j, removed := range candidates {
			if sameButName(before[removed.ID], after[added.ID], now) {
				added.Renamed, added.Anew = removed.ID, true
				added.Verdict, removed.Verdict = Neutral, Neutral
				gone[added.Summary] = append(candidates[:j], candidates[j+1:]...)
				break
			}
		}
	}
}

func sameButName(from, to *policy.Policy, now time.Time) bool {
	for _, c := range comparePolicy(from, to, now).Changes {
		if c.Field != "name" {
			return false
		}
	}
	return true
}
