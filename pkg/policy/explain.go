package policy

import "slices"

// Explanation says how one policy relates to a request.
type Explanation struct {
	Policy *Policy
	// Hits are the buckets that count the request, as Match gives them. Empty if the policy does not apply.
	Hits []Hit
	// Expired are the overrides that would hold if their time were not over.
	Expired []*Override
	// Unmet are the conditions that keep it from applying. One alone makes a near miss.
	Unmet []Unmet
}

// Unmet is a condition that does not hold, and values that the request has instead: 8 at most, of which the first 256 bytes.
type Unmet struct {
	Condition Condition
	Got       []string
}

// Fact is an attribute as the policies see it, in canonical form.
type Fact struct {
	Attribute string
	Value     string
}

// Explain tells of every policy of the view why it applies or not. It is Match for people: slow, but complete.
func (a *Attributes) Explain() []Explanation {
	hits := a.Match(nil)
	var all []Explanation
	for _, p := range a.view.policies {
		e := Explanation{Policy: p}
		for len(hits) > 0 && hits[0].Policy == p {
			e.Hits, hits = append(e.Hits, hits[0]), hits[1:]
		}
		if len(e.Hits) == 0 {
			e.Unmet = a.unmet(p)
		} else {
			e.Expired = a.expired(p)
		}
		all = append(all, e)
	}
	return all
}

func (a *Attributes) expired(p *Policy) (list []*Override) {
	now := a.view.set.time()
	for i := range p.Overrides {
		if o := &p.Overrides[i]; o.Expired(now) && a.someHold(p.rest.overrides[i].conditions) {
			list = append(list, o)
		}
	}
	return list
}

// someHold reports whether each of the conditions is met by some value.
func (a *Attributes) someHold(conditions []condition) bool {
	for i := range conditions {
		c := &conditions[i]
		if !slices.ContainsFunc(a.all(c.attribute), func(v *value) bool { return a.holds(c, v) }) {
			return false
		}
	}
	return true
}

// What is told of the values that a condition got: a request can have some thousand of them, of a megabyte together, and policies are many.
const (
	maxGot      = 8
	maxGotBytes = 256
)

// add notes the beginning of a value, if there is room.
func (u *Unmet) add(value []byte) {
	switch {
	case len(u.Got) == maxGot:
	case len(value) > maxGotBytes:
		u.Got = append(u.Got, string(value[:maxGotBytes])+"…")
	default:
		u.Got = append(u.Got, string(value))
	}
}

// unmet lists the conditions that no value meets. Where each is met by some value, but never all in one group, it lists those on
// attributes with several values.
func (a *Attributes) unmet(p *Policy) []Unmet {
	var none, scattered []Unmet
	for i := range p.rest.conditions {
		c := &p.rest.conditions[i]
		got := a.all(c.attribute)
		u := Unmet{Condition: p.Match[i]}
		held := len(got) == 0 && a.holds(c, nil)
		for _, v := range got {
			u.add(v.b)
			held = held || a.holds(c, v)
		}
		if !held {
			none = append(none, u)
		} else if len(got) > 1 {
			scattered = append(scattered, u)
		}
	}
	if len(none) > 0 {
		return none
	}
	return scattered
}

func (a *Attributes) all(id int32) []*value {
	vs := &a.values[id]
	var list []*value
	if vs.n > 0 {
		list = append(list, &vs.first)
	}
	for i := range vs.more {
		list = append(list, &vs.more[i])
	}
	return list
}

// Facts lists what is known of the request, composed attributes included: only attributes that some policy uses.
func (a *Attributes) Facts() []Fact {
	a.compose()
	var facts []Fact
	for id, at := range a.view.set.attributes {
		for _, v := range a.all(int32(id)) {
			facts = append(facts, Fact{at.name, string(v.b)})
		}
	}
	return facts
}
