package policydiff

import (
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// overrides compares those of two policies, by their match. Of several with the same match only the first is ever hit.
func (d *differ) overrides(from, to *policy.Policy, now time.Time) {
	before, after := byMatch(from), byMatch(to)
	note := func(key string, old, o *policy.Override) {
		verdict := numbersVerdict(inForce(from, old, now), inForce(to, o, now))
		if verdict == Neutral && old != nil && o != nil {
			verdict = untilVerdict(old, o, numbersVerdict(&to.Numbers, &o.Numbers))
		}
		d.field("override "+key, overrideText(old), overrideText(o), verdict, comment(o, old))
	}
	for _, key := range order(to) {
		note(key, before[key], after[key])
	}
	for _, key := range order(from) {
		if after[key] == nil {
			note(key, before[key], nil)
		}
	}
	if was, is := common(from, after), common(to, before); !slices.Equal(was, is) {
		d.field("order of overrides", list(was), list(is), Both, "the first that matches counts")
	}
}

// inForce are the numbers for whom an override is meant: its own, unless there is none any more.
func inForce(p *policy.Policy, o *policy.Override, now time.Time) *policy.Numbers {
	if o == nil || o.Expired(now) {
		return &p.Numbers
	}
	return &o.Numbers
}

func comment(o, old *policy.Override) string {
	if o == nil {
		o = old
	}
	return o.Comment
}

func byMatch(p *policy.Policy) map[string]*policy.Override {
	m := map[string]*policy.Override{}
	for i := range p.Overrides {
		if o := &p.Overrides[i]; m[matchText(o.Match)] == nil {
			m[matchText(o.Match)] = o
		}
	}
	return m
}

// order lists the matches of p's overrides, each once.
func order(p *policy.Policy) (keys []string) {
	for i := range p.Overrides {
		if key := matchText(p.Overrides[i].Match); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// common are the matches of p's overrides that others have, too.
func common(p *policy.Policy, others map[string]*policy.Override) []string {
	return slices.DeleteFunc(order(p), func(key string) bool { return others[key] == nil })
}

func overrideText(o *policy.Override) string {
	if o == nil {
		return ""
	}
	text := o.Numbers.String()
	if !o.Until.IsZero() {
		text += ", until " + o.Until.UTC().Format(time.RFC3339)
	}
	return text
}

// untilVerdict is that of an override that holds for a longer or shorter time. granted is what it does while it holds.
func untilVerdict(from, to *policy.Override, granted Verdict) Verdict {
	switch {
	case from.Until.Equal(to.Until):
		return Neutral
	case to.Until.IsZero() || !from.Until.IsZero() && to.Until.After(from.Until):
		return granted
	}
	return granted.opposite()
}
