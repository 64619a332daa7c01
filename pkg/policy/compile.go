package policy

import "slices"

// compile prepares p for Match.
func (b *builder) compile(p *Policy) {
	p.compiled = compiled{lower: p.Normalize == NormalizeLower}
	c := &p.compiled
	c.conditions = b.conditions(p.Match)
	for _, name := range p.Key {
		c.key = append(c.key, b.id(name))
	}
	c.tag = -1
	if name := p.Tag(); name != "" {
		c.tag = b.id(name)
		c.foreignTag = !slices.Contains(c.key, c.tag)
	}
	for _, id := range c.key {
		if id != c.tag {
			c.rest = append(c.rest, id)
		}
	}
	for i := range p.Overrides {
		o := &p.Overrides[i]
		c.overrides = append(c.overrides, override{b.conditions(o.Match), &o.Numbers, o.Until})
	}
	c.uses = c.all()
	c.prefix = appendValue([]byte{':'}, []byte(p.ID), false)
	if c.tag < 0 {
		c.prefix = NewKey(Part{}, p.ID).b
	}
	if longest := b.longestKey(c); longest > MaxKeyBytes {
		b.fault(p.Pos, "the keys of policy %q could take %d bytes, more than the %d allowed: use fewer attributes or shorter names", p.ID, longest, MaxKeyBytes)
	}
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
	ids := slices.Clone(c.rest)
	if c.tag >= 0 {
		ids = append(ids, c.tag)
	}
	for _, id := range ids {
		n += len("::") + len(b.set.attributes[id].row.short) + maxValueBytes
	}
	return n
}

// conditions makes the values canonical, as a request's are.
func (b *builder) conditions(match []Condition) []condition {
	var list []condition
	for i := range match {
		m := &match[i]
		r := rowOf(m.Attribute)
		c := condition{attribute: b.id(m.Attribute), kind: m.Kind}
		for j, v := range m.Values {
			if m.Kind == AnyOf {
				v = b.canonical(m, r, v)
				m.Values[j] = v
			}
			c.values = append(c.values, v)
		}
		if m.Kind == Prefix && r.opaque {
			b.fault(m.Pos, "%s cannot be matched by a prefix: it is compared in its canonical form", m.Attribute)
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
	if verdict != valid {
		b.fault(m.Pos, "%q is not a value that %s can have", v, m.Attribute)
		return v
	}
	return string(out)
}
