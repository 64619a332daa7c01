package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// compile prepares p for Match.
func (b *builder) compile(p *Policy) {
	p.compiled = compiled{lower: p.Normalize == NormalizeLower, overridden: len(p.Overrides) > 0}
	p.rest = &rest{}
	c, r := &p.compiled, p.rest
	r.conditions = b.conditions(p.Match, c.lower)
	for _, name := range p.Key {
		r.key = append(r.key, b.id(name))
	}
	c.tag = -1
	if name := p.Tag(); name != "" {
		c.tag = b.id(name)
		c.foreignTag = !slices.Contains(r.key, c.tag)
	}
	for i := range p.Overrides {
		o := &p.Overrides[i]
		r.overrides = append(r.overrides, override{b.conditions(o.Match, c.lower), &o.Numbers, o.Until})
	}
	r.uses = p.uses()
	r.prefix = string(appendValue([]byte{':'}, []byte(p.ID), false))
	if c.tag < 0 {
		r.prefix = NewKey(Part{}, p.ID).String()
	}
	if longest := b.longestKey(p); longest > MaxKeyBytes {
		b.fault(p.Pos, "", "the keys of policy %q could take %d bytes, more than the %d allowed: use fewer attributes or shorter names", p.ID, longest, MaxKeyBytes)
	}
}

// pack puts what a decision reads of a policy close together: of ten thousand policies each is cold to the processor, and memory that is spread costs
// more than what is done with it. What the policies have besides comes into few large pieces, which the garbage collector has less work with.
func (b *builder) pack() {
	var all strings.Builder
	places := map[string]uint32{} // most policies count by the same as others
	shared := func(list []int32) uint32 {
		same := fmt.Sprint(list)
		place, ok := places[same]
		if !ok {
			place = uint32(len(b.set.keys))
			places[same], b.set.keys = place, append(b.set.keys, list)
		}
		return place
	}
	for _, p := range b.set.policies {
		p.compiled.key = shared(p.rest.key)
		p.rest.key, p.rest.uses = b.set.keys[p.compiled.key], b.set.keys[shared(p.rest.uses)]

		length := 0
		p.eachText(func(text *string) { length += len(*text) })
		if left := cacheLine - all.Len()%cacheLine; length > left && length <= cacheLine {
			fmt.Fprintf(&all, "%*s", left, "")
		}
		p.compiled.texts, p.compiled.prefix = uint32(all.Len()), uint16(len(p.rest.prefix))
		p.eachText(func(text *string) { all.WriteString(*text) })
	}
	b.set.texts = all.String()
	var pieces pieces
	for _, p := range b.set.policies {
		at := p.compiled.texts
		p.eachText(func(text *string) {
			*text = b.set.texts[at:][:len(*text)]
			at += uint32(len(*text))
		})
		pieces.take(b, p)
	}
}

// pieces have what several policies have of a type.
type pieces struct {
	rests      piece[rest]
	conditions piece[condition]
	written    piece[Condition]
	texts      piece[string]
	positions  piece[Position]
}

// take moves what p has, and gives up texts that there are elsewhere.
func (ps *pieces) take(b *builder, p *Policy) {
	p.rest = &ps.rests.take([]rest{*p.rest})[0]
	p.rest.conditions = ps.conditions.take(p.rest.conditions)
	for i := range p.rest.conditions {
		c := &p.rest.conditions[i]
		c.values = ps.texts.take(c.values)
	}
	p.Match = ps.written.take(p.Match)
	for i := range p.Match {
		m, c := &p.Match[i], &p.rest.conditions[i]
		m.Attribute = b.set.attributes[c.attribute].name
		if slices.Equal(m.Values, c.values) {
			m.Values = c.values
		} else {
			m.Values = ps.texts.take(m.Values)
		}
	}
	p.Key = ps.texts.take(p.Key)
	for i, id := range p.rest.key {
		p.Key[i] = b.set.attributes[id].name
	}
	p.keyPos = ps.positions.take(p.keyPos)
}

// piece is memory for many lists.
type piece[T any] struct {
	free []T
	next int // how long a next one is: twice as long as the one before
}

// take moves a list.
func (p *piece[T]) take(list []T) []T {
	if len(list) == 0 {
		return list
	}
	if len(p.free) < len(list) {
		p.next = min(max(2*p.next, 4), 512)
		p.free = make([]T, max(len(list), p.next))
	}
	n := copy(p.free, list)
	list, p.free = p.free[:n:n], p.free[n:]
	return list
}

// cacheLine is how many bytes a processor gets from memory at once.
const cacheLine = 64

// eachText calls with the texts that a decision reads of p. The prefix of its keys comes first, then the values of its conditions, in order.
func (p *Policy) eachText(call func(text *string)) {
	call(&p.rest.prefix)
	for i := range p.rest.conditions {
		values := p.rest.conditions[i].values
		for j := range values {
			call(&values[j])
		}
	}
	call(&p.ID)
	call(&p.Name)
}

// Tag names the attribute whose value stands in the braces of the policy's keys: hashTag, else tenant if the key has it, else ip,
// else the key's first. Empty if the policy counts everything in one bucket.
func (p *Policy) Tag() string {
	switch {
	case p.HashTag != "":
		return p.HashTag
	case slices.Contains(p.Key, "tenant"):
		return "tenant"
	case slices.Contains(p.Key, "ip"):
		return "ip"
	case len(p.Key) > 0:
		return p.Key[0]
	}
	return ""
}

// uses lists the attributes that decide whether p applies and what it counts by, each once.
func (p *Policy) uses() []int32 {
	ids := slices.Clone(p.rest.key)
	for _, cond := range p.rest.conditions {
		ids = append(ids, cond.attribute)
	}
	if p.compiled.tag >= 0 {
		ids = append(ids, p.compiled.tag)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (b *builder) longestKey(p *Policy) int {
	n := len("rl:{}") + len(p.rest.prefix) + len(shadowSuffix)
	ids := slices.Clone(p.rest.key)
	if p.compiled.foreignTag {
		ids = append(ids, p.compiled.tag)
	}
	for _, id := range ids {
		n += len("::") + len(b.set.attributes[id].row.short) + maxValueBytes
	}
	return n
}

// conditions makes the values canonical, as a request's are.
func (b *builder) conditions(match []Condition, lower bool) []condition {
	var list []condition
	for i := range match {
		m := &match[i]
		r := rowOf(m.Attribute)
		c := condition{attribute: b.id(m.Attribute), kind: m.Kind, lower: lower && r.text}
		for j, v := range m.Values {
			if m.Kind == AnyOf {
				v = b.canonical(m, r, v)
				m.Values[j] = v
			}
			if c.lower {
				v = string(appendLower(nil, []byte(v)))
			}
			c.values = append(c.values, v)
		}
		if m.Kind == Prefix && r.opaque {
			b.fault(m.Pos, "", "%s cannot be matched by a prefix: it is compared in its canonical form", m.Attribute)
		}
		if len(c.values) >= manyValues {
			c.set = make(map[string]struct{}, len(c.values))
			for _, v := range c.values {
				c.set[v] = struct{}{}
			}
		}
		list = append(list, c)
	}
	return list
}

func (b *builder) canonical(m *Condition, r row, v string) string {
	if r.canonical == nil || r.attribute == "apiKey" && hashedAPIKey(v) {
		return v
	}
	out, verdict := r.canonical(nil, []byte(v), b.set.ipv6Prefix)
	switch {
	case verdict != valid:
		b.fault(m.Pos, "", "%q is not a value that %s can have", v, m.Attribute)
	case r.attribute == "ip" && strings.Contains(v, "/") && (v != string(out) || isNetwork(out, b.set.ipv6Prefix)):
		b.network(m, v, out)
	}
	return string(out)
}

// isNetwork reports whether a canonical address stands for more than one client.
func isNetwork(canonical []byte, ipv6Prefix int) bool {
	p, err := netip.ParsePrefix(string(canonical))
	return err == nil && !(p.Addr().Is6() && p.Bits() == ipv6Prefix)
}

// network refuses v, which somebody wrote as a network. Compared as one value it would be met by no client, or by one.
func (b *builder) network(m *Condition, v string, canonical []byte) {
	hint := "to match networks, have Envoy send an attribute that tells them apart"
	if !isNetwork(canonical, b.set.ipv6Prefix) {
		hint = "write " + string(canonical)
	}
	b.fault(m.Pos, hint, "%s compares one client: an address, not a network such as %s", m.Attribute, v)
}
