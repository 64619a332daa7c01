package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// compile prepares p for Match.
func (b *builder) compile(p *Policy) {
	p.compiled = compiled{lower: p.Normalize == NormalizeLower}
	c := &p.compiled
	c.conditions = b.conditions(p.Match, c.lower)
	for _, name := range p.Key {
		c.key = append(c.key, b.id(name))
	}
	c.tag = -1
	if name := p.Tag(); name != "" {
		c.tag = b.id(name)
		c.foreignTag = !slices.Contains(c.key, c.tag)
	}
	for i := range p.Overrides {
		o := &p.Overrides[i]
		c.overrides = append(c.overrides, override{b.conditions(o.Match, c.lower), &o.Numbers, o.Until})
	}
	c.overridden = len(c.overrides) > 0
	c.uses = c.all()
	c.prefix = string(appendValue([]byte{':'}, []byte(p.ID), false))
	if c.tag < 0 {
		c.prefix = NewKey(Part{}, p.ID).String()
	}
	if longest := b.longestKey(c); longest > MaxKeyBytes {
		b.fault(p.Pos, "", "the keys of policy %q could take %d bytes, more than the %d allowed: use fewer attributes or shorter names", p.ID, longest, MaxKeyBytes)
	}
}

// pack puts what a decision reads of a policy close together: of ten thousand policies each is cold to the processor, and memory that is spread costs
// more than what is done with it.
func (b *builder) pack() {
	var all strings.Builder
	for _, p := range b.set.policies {
		p.eachText(func(text *string) { all.WriteString(*text) })
	}
	b.set.texts = all.String()
	at := 0
	keys := map[string][]int32{} // most policies count by the same as others
	for _, p := range b.set.policies {
		same := fmt.Sprint(p.compiled.key)
		if keys[same] == nil {
			keys[same] = p.compiled.key
		}
		p.compiled.key = keys[same]
		p.compiled.texts = uint32(at)
		p.eachText(func(text *string) {
			*text = b.set.texts[at:][:len(*text)]
			at += len(*text)
		})
	}
}

// eachText calls with the texts that a decision reads of p. The values of its conditions come first, in order.
func (p *Policy) eachText(call func(text *string)) {
	for i := range p.compiled.conditions {
		values := p.compiled.conditions[i].values
		for j := range values {
			call(&values[j])
		}
	}
	call(&p.compiled.prefix)
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

// all lists the attributes that decide whether p applies and what it counts by, each once.
func (c *compiled) all() []int32 {
	ids := slices.Clone(c.key)
	for _, cond := range c.conditions {
		ids = append(ids, cond.attribute)
	}
	if c.tag >= 0 {
		ids = append(ids, c.tag)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func (b *builder) longestKey(c *compiled) int {
	n := len("rl:{}") + len(c.prefix) + len(shadowSuffix)
	ids := slices.Clone(c.key)
	if c.foreignTag {
		ids = append(ids, c.tag)
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
