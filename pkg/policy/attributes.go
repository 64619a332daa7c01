package policy

import (
	"bytes"
	"math/bits"
)

// MaxGroups is how many groups of attributes one request may have (Envoy: descriptors).
const MaxGroups = 64

// Attributes are the facts known about one request, for the policies of one [View]. They come in groups: an attribute with one
// value is shared by all groups; one with several values belongs to the groups that carry them. Attributes are meant to
// be reused; the bytes given to Add must stay unchanged until then.
type Attributes struct {
	// Partial says that the request had more groups or entries than were added. A condition on an attribute without a value
	// then counts as met, so that nothing escapes a policy by hiding what it matches.
	Partial bool
	// InvalidIPs counts the values that should have been IP addresses.
	InvalidIPs int

	view    *View
	several bool     // some attribute has several values
	values  []values // by attribute id
	arena   []byte   // canonical values and keys
	used    []int32  // the attributes that have values
	found   []int32  // candidates, scratch of Match
	lower   []byte   // scratch of key
}

// values are the distinct canonical values of one attribute.
type values struct {
	n     int
	first value
	more  []value // n-1 of them
}

type value struct {
	b      []byte
	groups uint64 // those that carry it
}

// Reset empties a for another request, to be decided by the policies of view.
func (a *Attributes) Reset(view *View) {
	for _, id := range a.used {
		v := &a.values[id]
		v.n, v.first, v.more = 0, value{}, v.more[:0]
	}
	a.view, a.Partial, a.InvalidIPs, a.several = view, false, 0, false
	a.used, a.arena, a.found = a.used[:0], a.arena[:0], a.found[:0]
	if cap(a.arena) > maxKeptArena {
		a.arena = nil
	}
	if n := len(view.set.attributes); len(a.values) < n {
		a.values = append(a.values, make([]values, n-len(a.values))...)
	}
}

// Add notes a fact of a group: an entry's key, as the policy files' attributes tables know it, and its value. It reports
// whether any policy of the view has a use for it. A second value for the same attribute in one group is ignored.
func (a *Attributes) Add(group int, entry, raw []byte) bool {
	id, ok := a.view.entries[string(entry)]
	if !ok {
		return false
	}
	r := &a.view.set.attributes[id].row
	if r.canonical == nil {
		a.put(id, raw, 1<<group)
		return true
	}
	v, verdict := r.canonical(a.room(len(raw)+maxValueBytes), raw, a.view.set.ipv6Prefix)
	a.keep(v)
	if verdict != valid {
		a.InvalidIPs++
	}
	if verdict != refused {
		a.put(id, v, 1<<group)
	}
	return true
}

// maxKeptArena is the largest arena, in bytes, that one request leaves to the next.
const maxKeptArena = 16 << 10

// room is an empty slice at the end of the arena, with space for n bytes. What was made of an arena that is now too small
// stays where it is.
func (a *Attributes) room(n int) []byte {
	if free := cap(a.arena) - len(a.arena); free < n {
		a.arena = make([]byte, 0, max(2*cap(a.arena), n, 1<<10))
	}
	return a.arena[len(a.arena):]
}

// keep makes the arena end behind v, if v was written into its room.
func (a *Attributes) keep(v []byte) {
	free := a.arena[len(a.arena):cap(a.arena)]
	if len(v) > 0 && len(v) <= len(free) && &v[0] == &free[0] {
		a.arena = a.arena[:len(a.arena)+len(v)]
	}
}

// put notes that groups carry value b, but for those that carry one already.
func (a *Attributes) put(id int32, b []byte, groups uint64) {
	vs := &a.values[id]
	if vs.n == 0 {
		vs.n, vs.first = 1, value{b, groups}
		a.used = append(a.used, id)
		return
	}
	if groups &^= a.groups(id); groups == 0 {
		return
	}
	if bytes.Equal(vs.first.b, b) {
		vs.first.groups |= groups
		return
	}
	for i := range vs.more {
		if bytes.Equal(vs.more[i].b, b) {
			vs.more[i].groups |= groups
			return
		}
	}
	vs.more = append(vs.more, value{b, groups})
	vs.n++
	a.several = true
}

// groups are those that carry any value of attribute id.
func (a *Attributes) groups(id int32) uint64 {
	vs := &a.values[id]
	g := vs.first.groups
	for i := range vs.more {
		g |= vs.more[i].groups
	}
	return g
}

// anyGroup asks for an attribute's only value.
const anyGroup = -1

// value gives the value of attribute id as group sees it, and nil if there is none.
func (a *Attributes) value(id int32, group int) *value {
	vs := &a.values[id]
	switch {
	case vs.n == 0:
		return nil
	case vs.n == 1:
		return &vs.first
	case group == anyGroup:
		return nil
	case vs.first.groups>>group&1 == 1:
		return &vs.first
	}
	for i := range vs.more {
		if vs.more[i].groups>>group&1 == 1 {
			return &vs.more[i]
		}
	}
	return nil
}

// compose gives a value to every composed attribute that has none: one shared value, or one for each group that holds all parts
// with several values.
func (a *Attributes) compose() {
	for i := range a.view.templates {
		t := &a.view.templates[i]
		if a.values[t.attribute].n > 0 {
			continue
		}
		groups := a.scattered(t.parts)
		if groups == 0 {
			a.composeFor(t, anyGroup)
			continue
		}
		for ; groups != 0; groups &= groups - 1 {
			a.composeFor(t, bits.TrailingZeros64(groups))
		}
	}
}

// scattered gives the groups that carry any of those attributes that have several values; none if there are no such.
func (a *Attributes) scattered(ids []int32) (groups uint64) {
	for _, id := range ids {
		if a.values[id].n > 1 {
			groups |= a.groups(id)
		}
	}
	return groups
}

func (a *Attributes) composeFor(t *template, group int) {
	length := len(t.literals[0])
	for i, id := range t.parts {
		v := a.value(id, group)
		if v == nil {
			return
		}
		length += len(v.b) + len(t.literals[i+1])
	}
	var groups uint64
	b := append(a.room(length), t.literals[0]...)
	for i, id := range t.parts {
		v := a.value(id, group)
		b = append(append(b, v.b...), t.literals[i+1]...)
		groups |= v.groups
	}
	a.keep(b)
	if r := &a.view.set.attributes[t.attribute].row; r.canonical != nil {
		b, _ = r.canonical(a.room(len(b)+maxValueBytes), b, a.view.set.ipv6Prefix)
		a.keep(b)
	}
	if group != anyGroup {
		groups = 1 << group
	}
	a.put(t.attribute, b, groups)
}
