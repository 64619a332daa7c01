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

// compiled is what Match reads of a policy: attributes by id.
type compiled struct {
	conditions []condition
	key        []int32
	rest       []int32 // the key's attributes in order, without the one in the tag
	tag        int32   // the attribute in the braces; -1: none, one bucket for all
	foreignTag bool    // the tag is not an attribute of the key
	uses       []int32 // all of the above, each once
	overrides  []override
	prefix     []byte // ":" + escaped id, or the whole key of a policy without attributes
	lower      bool
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
	for _, i := range a.candidates() {
		p := a.view.policies[i]
		groups := a.scattered(p.compiled.uses)
		if groups == 0 {
			dst = a.matchGroup(dst, p, anyGroup)
			continue
		}
		for first := len(dst); groups != 0; groups &= groups - 1 {
			dst = merge(a.matchGroup(dst, p, bits.TrailingZeros64(groups)), first)
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

// matchGroup appends p's hit as group sees the attributes, if p's conditions hold.
func (a *Attributes) matchGroup(dst []Hit, p *Policy, group int) []Hit {
	c := &p.compiled
	hit := Hit{Policy: p, Numbers: &p.Numbers}
	for i := range c.conditions {
		cond := &c.conditions[i]
		v := a.value(cond.attribute, group)
		if !a.holds(cond, v) && (v != nil || !a.Partial) {
			return dst
		}
		hit.use(v, group)
	}
	a.identify(&hit, group)
	return append(dst, hit)
}

// identify finds the key of a hit, or what is missing for it.
func (a *Attributes) identify(hit *Hit, group int) {
	p, c := hit.Policy, &hit.Policy.compiled
	for _, id := range c.key {
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
	hit.Numbers = a.numbers(p, c, group)
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
func (a *Attributes) numbers(p *Policy, c *compiled, group int) *Numbers {
next:
	for i := range c.overrides {
		o := &c.overrides[i]
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
	if c.tag < 0 {
		b = append(b, c.prefix...)
	} else {
		b = a.appendPart(append(b, "rl:{"...), c, c.tag, group)
		b = append(append(b, '}'), c.prefix...)
		for _, id := range c.rest {
			b = a.appendPart(append(b, ':'), c, id, group)
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

// candidates gives the policies that may match, in file order.
func (a *Attributes) candidates() []int32 {
	x := &a.view.index
	if a.Partial || len(x.lists) == 0 {
		return a.view.all
	}
	found := append(a.found[:0], x.always...)
	sorted := true
	for i := range x.lists {
		found, sorted = a.lookUp(found, sorted, &x.lists[i])
	}
	a.found = found
	if sorted {
		return found
	}
	slices.Sort(found)
	return slices.Compact(found)
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
		list := e.byValue[string(b)]
		if len(list) > 0 {
			sorted = sorted && (len(found) == 0 || found[len(found)-1] < list[0])
			found = append(found, list...)
		}
	}
	return found, sorted
}
