package page

import (
	"fmt"
	"slices"

	"github.com/envoy-rls/envoy-rls/internal/explain"
	"github.com/envoy-rls/envoy-rls/internal/topkeys"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Why says why no policy counts a descriptor. Values that tell who somebody is, those of attributes that any policy counts by, show their ends
// only; of the others, those that policies compare are shown.
type Why struct {
	Reasons []string `json:"reasons"`
	// Nearest is the policy that misses the descriptor by the least; empty if none comes near.
	Nearest string `json:"nearest,omitempty"`
}

// mostReasons bounds what is said about one shape.
const mostReasons = 4

// reader reads requests as the policies of one set do.
type reader struct {
	set *policy.Set
	// hidden are the attributes whose values tell who somebody is, compared those that some policy compares.
	hidden, compared map[string]bool
}

func newReader(set *policy.Set) *reader {
	r := &reader{set, map[string]bool{"ip": true, "apiKey": true, "username": true, "tenant": true}, map[string]bool{}}
	for _, p := range set.Policies() {
		r.hidden[p.Tag()] = true
		for _, a := range p.Key {
			r.hidden[a] = true
		}
		for _, c := range p.Match {
			r.compared[c.Attribute] = true
		}
	}
	return r
}

// why explains descriptor at of req; -1: its domain.
func (r *reader) why(req *descriptors.Request, at int) Why {
	view := r.set.View(req.Domain)
	if at < 0 {
		return Why{Reasons: []string{hint("no policy file serves this domain", string(req.Domain), r.set.Domains())}}
	}
	own := req.Descriptors[at].Entries
	if len(own) == 0 {
		return Why{Reasons: []string{"the descriptor has no entries"}}
	}
	w := Why{Reasons: []string{}}
	attributes := map[string]bool{}
	for _, e := range own {
		name := view.Attribute(e.Key)
		if name == "" {
			w.add(hint(fmt.Sprintf("no policy has a use for entries with the key %q", shown(string(e.Key))), string(e.Key), view.Entries()))
			name = view.Attribute([]byte(nearestEntry(view, string(e.Key))))
		}
		attributes[name] = name != ""
	}
	r.nearest(&w, view, explain.Why(r.set, req), attributes)
	return w
}

// add adds a reason, once.
func (w *Why) add(reason string) {
	if len(w.Reasons) < mostReasons && !slices.Contains(w.Reasons, reason) {
		w.Reasons = append(w.Reasons, reason)
	}
}

func hint(text, wrong string, right []string) string {
	if meant := policy.DidYouMean(wrong, right); meant != "" {
		return text + "; " + meant
	}
	return text
}

// nearestEntry is the key that key may be a misspelling of.
func nearestEntry(view *policy.View, key string) string {
	for _, name := range view.Entries() {
		if policy.DidYouMean(key, []string{name}) != "" {
			return name
		}
	}
	return ""
}

// nearest finds the policy that is about some of the attributes and that the fewest conditions keep from applying, and says which.
func (r *reader) nearest(w *Why, view *policy.View, all *explain.Report, attributes map[string]bool) {
	fewest, best := 0, []string(nil)
	for i, p := range view.Policies() {
		if !r.about(p, attributes) {
			continue
		}
		reasons, unmet := r.reasons(&all.Policies[i])
		if len(reasons) == 0 {
			continue
		}
		if best == nil || unmet < fewest {
			fewest, best, w.Nearest = unmet, reasons, shown(p.ID)
		}
	}
	for _, reason := range best {
		w.add(reason)
	}
}

// about reports whether p matches on, or counts by, one of the attributes, or what is composed of one.
func (r *reader) about(p *policy.Policy, attributes map[string]bool) bool {
	is := func(attribute string) bool {
		if attributes[attribute] {
			return true
		}
		_, parts := r.set.Composed(p, attribute)
		return slices.ContainsFunc(parts, func(part string) bool { return attributes[part] })
	}
	return is(p.Tag()) || slices.ContainsFunc(p.Key, is) || slices.ContainsFunc(p.Match, func(c policy.Condition) bool { return is(c.Attribute) })
}

// reasons says why a policy does not count a request, and how many of its conditions do not hold. No reasons: it does.
func (r *reader) reasons(p *explain.Policy) (reasons []string, unmet int) {
	for _, h := range p.Hits {
		if h.Missing == "" {
			return nil, 0
		}
		reasons = append(reasons, fmt.Sprintf("the request has no %s, which is part of the key", h.Missing))
	}
	for _, u := range p.Unmet {
		reasons = append(reasons, fmt.Sprintf("%s is %s, must be %s", u.Attribute, r.got(&u), shorten(u.Wanted)))
	}
	return reasons, len(p.Unmet)
}

func (r *reader) got(u *explain.Unmet) string {
	switch {
	case len(u.Got) == 0:
		return "absent"
	case r.hidden[u.Attribute]:
		return "…" + shown(topkeys.Ending(u.Got[0]))
	}
	return fmt.Sprintf("%q", shown(u.Got[0]))
}

// shorten keeps lists of a policy's values readable.
func shorten(s string) string {
	const most = 120
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return s
}

// entries are those of descriptor at, with the values that may be shown.
func (r *reader) entries(req *descriptors.Request, at int) []ShownEntry {
	list := []ShownEntry{}
	if at < 0 {
		return list
	}
	view := r.set.View(req.Domain)
	for _, e := range req.Descriptors[at].Entries {
		one := ShownEntry{Key: shown(string(e.Key))}
		if name := view.Attribute(e.Key); r.compared[name] && !r.hidden[name] {
			one.Value = shown(string(e.Value))
		}
		list = append(list, one)
	}
	return list
}
