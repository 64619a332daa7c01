package policy

import (
	"bytes"
	"math/bits"
	"slices"
	"time"
)

// Hit is a policy that applies to a request, and the bucket that counts it.
type Hit struct {
	Policy  *Policy
	Numbers *Numbers // the policy's own, or an override's
	Key     Key      // zero if Missing
	Groups  uint64   // the groups whose attributes were used in match or key
	Tagging uint64   // the groups that gave the hash tag
	// Missing is the attribute of the key or hash tag that the request lacks, if any. It is then up to Policy.OnMissingKey what
	// happens.
	Missing string
}

// compiled is what Match reads of most policies: attributes by id.
type compiled struct {
	foreignTag bool // the tag is not an attribute of the key
	lower      bool
	overridden bool    // there are overrides
	only       bool    // the listing's condition is the only one
	prefix     uint16  // the length of what stands at texts: ":" + escaped id, or the whole key of a policy without attributes
	tag        int32   // the attribute in the braces; -1: none, one bucket for all
	listing    listing // the condition by which the index lists it
	texts      uint32  // a place in Set.texts
	key        uint32  // a place in Set.keys
}

// rest is what Match reads of some policies.
type rest struct {
	conditions []condition
	key        []int32
	prefix     string
	uses       []int32 // attributes of all of the above, each once
	overrides  []override
}

type condition struct {
	attribute int32
	kind      ConditionKind
	values    []string
	set       map[string]struct{} // instead of values, when there are many
	lower     bool                // the policy's normalize applies: values are in lower case, a request's are to be
}

type override struct {
	conditions []condition
	numbers    *Numbers
	until      time.Time
}

// Match appends the policies that apply to dst, in file order: one Hit for each combination of attributes that a
// policy's conditions hold for. Keys are valid until a is reset.
func (a *Attributes) Match(dst []Hit) []Hit {
	a.compose()
	candidates, found := a.candidates()
	block := a.view.set.block
	for _, i := range candidates {
		p, known := &block[i], unlisted
		if found {
			known = p.compiled.listing
		}
		var groups uint64
		if a.several {
			groups = a.scattered(p.rest.uses)
		}
		if groups == 0 {
			dst = a.matchGroup(dst, p, anyGroup, known)
			continue
		}
		for first := len(dst); groups != 0; groups &= groups - 1 {
			dst = merge(a.matchGroup(dst, p, bits.TrailingZeros64(groups), unlisted), first)
		}
	}
	return dst
}

// merge folds the last hit into an earlier one from first on that has the same key.
func merge(hits []Hit, first int) []Hit {
	last := len(hits) - 1
	if last < first {
		return hits
	}
	for i := first; i < last; i++ {
		if bytes.Equal(hits[i].Key.b, hits[last].Key.b) && hits[i].Missing == hits[last].Missing {
			hits[i].Groups |= hits[last].Groups
			hits[i].Tagging |= hits[last].Tagging
			return hits[:last]
		}
	}
	return hits
}

// matchGroup appends p's hit as group sees the attributes, if p's conditions hold. known is one that does: it is not asked again.
func (a *Attributes) matchGroup(dst []Hit, p *Policy, group int, known listing) []Hit {
	hit := Hit{Policy: p, Numbers: &p.Numbers}
	if known != unlisted {
		hit.use(a.value(known.attribute, group), group)
	}
	if known == unlisted || !p.compiled.only {
		for i := range p.rest.conditions {
			if i == int(known.condition) {
				continue
			}
			cond := &p.rest.conditions[i]
			v := a.value(cond.attribute, group)
			if !a.holds(cond, v) && (v != nil || !a.Partial) {
				return dst
			}
			hit.use(v, group)
		}
	}
	a.identify(&hit, group)
	return append(dst, hit)
}

// identify finds the key of a hit, or what is missing for it.
func (a *Attributes) identify(hit *Hit, group int) {
	p, c := hit.Policy, &hit.Policy.compiled
	for _, id := range a.view.set.keys[c.key] {
		v := a.value(id, group)
		if v == nil {
			hit.Missing = a.view.set.attributes[id].name
			return
		}
		hit.use(v, group)
	}
	if c.foreignTag {
		v := a.value(c.tag, group)
		if v == nil {
			hit.Missing = a.view.set.attributes[c.tag].name
			return
		}
		hit.Tagging = v.groups
	}
	hit.Numbers = a.numbers(p, group)
	hit.Key = a.key(p, c, group)
}

// Bucket is the bucket of a policy of the view for these attributes, as Match gives it, whether or not the policy's conditions hold: for
// people who mean that bucket. Of an attribute with several values none counts.
func (a *Attributes) Bucket(p *Policy) Hit {
	a.compose()
	hit := Hit{Policy: p, Numbers: &p.Numbers}
	a.identify(&hit, anyGroup)
	return hit
}

// use notes which groups gave v.
func (h *Hit) use(v *value, group int) {
	switch {
	case v == nil:
	case group != anyGroup && v.groups>>group&1 == 1:
		h.Groups |= 1 << group
	default:
		h.Groups |= v.groups
	}
}

// holds reports whether v meets the condition; nil is no value.
func (a *Attributes) holds(c *condition, v *value) bool {
	if v == nil || c.kind == Absent {
		return v == nil && c.kind == Absent
	}
	b := v.b
	if c.lower {
		a.lower = appendLower(a.lower[:0], b)
		b = a.lower
	}
	switch c.kind {
	case Present:
		return true
	case Prefix:
		return len(b) >= len(c.values[0]) && string(b[:len(c.values[0])]) == c.values[0]
	}
	if c.set != nil {
		_, ok := c.set[string(b)]
		return ok
	}
	for _, want := range c.values {
		if string(b) == want {
			return true
		}
	}
	return false
}

// numbers gives those of the first override that holds, else the policy's own.
func (a *Attributes) numbers(p *Policy, group int) *Numbers {
	if !p.compiled.overridden {
		return &p.Numbers
	}
next:
	for i := range p.rest.overrides {
		o := &p.rest.overrides[i]
		for j := range o.conditions {
			if !a.holds(&o.conditions[j], a.value(o.conditions[j].attribute, group)) {
				continue next
			}
		}
		if o.until.IsZero() || a.view.set.time().Before(o.until) {
			return o.numbers
		}
	}
	return &p.Numbers
}

// key renders the bucket's key into the arena.
func (a *Attributes) key(p *Policy, c *compiled, group int) Key {
	b := a.room(MaxKeyBytes)
	set := a.view.set
	prefix := set.texts[c.texts:][:c.prefix]
	if c.tag < 0 {
		b = append(b, prefix...)
	} else {
		b = a.appendPart(append(b, "rl:{"...), c, c.tag, group)
		b = append(append(b, '}'), prefix...)
		for _, id := range set.keys[c.key] {
			if id != c.tag {
				b = a.appendPart(append(b, ':'), c, id, group)
			}
		}
	}
	if p.Mode == Shadow {
		b = append(b, shadowSuffix...)
	}
	a.keep(b)
	return Key{b}
}

func (a *Attributes) appendPart(b []byte, c *compiled, id int32, group int) []byte {
	at := &a.view.set.attributes[id]
	v := a.value(id, group).b
	if c.lower && at.row.text {
		a.lower = appendLower(a.lower[:0], v)
		v = a.lower
	}
	return appendPart(b, at.row.short, v, at.row.colons)
}

// candidates gives the policies that may match, in file order. found: they are those that the index lists.
func (a *Attributes) candidates() (policies []int32, found bool) {
	x := &a.view.index
	if a.Partial || len(x.lists) == 0 {
		return a.view.all, false
	}
	list, sorted := append(a.found[:0], x.always...), true
	for i := range x.lists {
		list, sorted = a.lookUp(list, sorted, &x.lists[i])
	}
	a.found = list
	if sorted {
		return list, true
	}
	slices.Sort(list)
	return slices.Compact(list), true
}

// lookUp adds the policies that e lists for the values of its attribute, and says whether found is still in order.
func (a *Attributes) lookUp(found []int32, sorted bool, e *indexed) ([]int32, bool) {
	vs := &a.values[e.attribute]
	for i := range vs.n {
		v := &vs.first
		if i > 0 {
			v = &vs.more[i-1]
		}
		b := v.b
		if e.prefix > len(b) {
			continue
		}
		if e.prefix > 0 {
			b = b[:e.prefix]
		}
		switch list := e.find(b); {
		case list == 0:
		case list < several:
			sorted = sorted && (len(found) == 0 || found[len(found)-1] < int32(list-1))
			found = append(found, int32(list-1))
		default:
			many := a.view.index.flat[list-several:]
			many = many[1:][:many[0]]
			sorted = sorted && (len(found) == 0 || found[len(found)-1] < many[0])
			found = append(found, many...)
		}
	}
	return found, sorted
}
