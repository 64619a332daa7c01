package policy

import (
	"maps"
	"slices"
	"strings"
)

// manyValues is from how many values on a condition looks them up instead of comparing each.
const manyValues = 8

// builder makes a Set, gathering all faults on the way.
type builder struct {
	set    *Set
	ids    map[string]int32 // attribute name -> id
	faults Faults
}

func newBuilder(files []*File) *builder {
	return &builder{
		set: &Set{version: version(files), ipv6Prefix: DefaultIPv6Prefix, views: map[string]*View{}},
		ids: map[string]int32{},
	}
}

func (b *builder) fault(pos Position, hint, format string, args ...any) {
	b.faults.add(newFault(pos, hint, format, args...))
}

// id gives the id of an attribute that something uses.
func (b *builder) id(name string) int32 {
	id, ok := b.ids[name]
	if !ok {
		id = int32(len(b.set.attributes))
		b.ids[name] = id
		b.set.attributes = append(b.set.attributes, attribute{name, rowOf(name)})
	}
	return id
}

// addPolicies moves the files' policies into one block of memory, where a decision finds them by their number.
func (b *builder) addPolicies(files []*File) {
	n := 0
	for _, f := range files {
		n += len(f.Policies)
	}
	b.set.block = make([]Policy, n)
	for _, f := range files {
		for i, p := range f.Policies {
			n := len(b.set.policies)
			f.Policies[i] = &b.set.block[n]
			*f.Policies[i] = *p
			f.Policies[i].Index = n
			b.set.policies = append(b.set.policies, f.Policies[i])
		}
	}
	for _, p := range b.set.policies {
		b.addNumbers(&p.Numbers)
		for i := range p.Overrides {
			b.addNumbers(&p.Overrides[i].Numbers)
		}
	}
}

func (b *builder) addNumbers(n *Numbers) {
	n.Index = len(b.set.numbers)
	b.set.numbers = append(b.set.numbers, n)
}

func (b *builder) setIPv6Prefix(files []*File) {
	var pos Position
	for _, f := range files {
		if f.IPv6PrefixPos == (Position{}) {
			continue
		}
		if pos != (Position{}) && f.IPv6Prefix != b.set.ipv6Prefix {
			b.fault(f.IPv6PrefixPos, "", "ipv6Prefix %d differs from the %d at %s: all files of a set must agree", f.IPv6Prefix, b.set.ipv6Prefix, pos)
			continue
		}
		pos, b.set.ipv6Prefix = f.IPv6PrefixPos, f.IPv6Prefix
	}
}

// addViews makes the view of each domain: its own files and those that serve every domain.
func (b *builder) addViews(files []*File) {
	serves := func(domain string) (mine []*File) {
		for _, f := range files {
			if f.Domain == "" || f.Domain == domain {
				mine = append(mine, f)
			}
		}
		return mine
	}
	for _, f := range files {
		if f.Domain != "" && b.set.views[f.Domain] == nil {
			b.set.views[f.Domain] = b.newView(f.Domain, serves(f.Domain))
		}
	}
	b.set.everywhere = b.newView("", serves(""))
	for _, v := range b.views() {
		b.addAttributes(v, serves(v.domain))
	}
}

func (b *builder) views() []*View {
	views := []*View{b.set.everywhere}
	for _, domain := range b.set.Domains() {
		views = append(views, b.set.views[domain])
	}
	return views
}

func (b *builder) newView(domain string, files []*File) *View {
	v := &View{set: b.set, domain: domain, known: len(files) > 0, entries: map[string]int32{}}
	for _, f := range files {
		for _, p := range f.Policies {
			v.all = append(v.all, int32(p.Index))
			v.policies = append(v.policies, p)
			for _, name := range p.attributes() {
				b.id(name)
			}
		}
	}
	return v
}

// attributes names all that the policy looks at. A name may come twice.
func (p *Policy) attributes() []string {
	names := slices.Clone(p.Key)
	for _, c := range p.Match {
		names = append(names, c.Attribute)
	}
	for _, o := range p.Overrides {
		for _, c := range o.Match {
			names = append(names, c.Attribute)
		}
	}
	if p.HashTag != "" {
		names = append(names, p.HashTag)
	}
	return names
}

// addAttributes makes the table from entry keys to attributes: what the files say, then the defaults, then every attribute by its
// own name.
func (b *builder) addAttributes(v *View, files []*File) {
	n := b.naming(files)
	b.checkNames(v, n, files)
	b.addTemplates(v, n.composed)
	for id, at := range b.set.attributes {
		if _, ok := n.renamed[at.name]; !ok {
			v.entries[at.name] = int32(id)
		}
	}
	for entry, r := range n.renamed {
		if id, ok := b.ids[r.Attribute]; ok {
			v.entries[entry] = id
		}
	}
}

// faultOnce reports a fault of a file that serves several domains only once.
func (b *builder) faultOnce(pos Position, hint, format string, args ...any) {
	for i := range b.faults {
		if b.faults[i].Pos == pos {
			return
		}
	}
	b.fault(pos, hint, format, args...)
}

// template composes an attribute: literals[0], the first part's value, literals[1], …
type template struct {
	attribute int32
	literals  []string
	parts     []int32
}

// addTemplates adds those that some policy needs.
func (b *builder) addTemplates(v *View, composed map[string]AttributeRule) {
	for _, name := range slices.Sorted(maps.Keys(composed)) {
		r := composed[name]
		literals, parts := splitTemplate(r.Template)
		id, used := b.ids[name]
		t := template{attribute: id, literals: literals}
		for _, part := range parts {
			if _, nested := composed[part]; nested {
				b.faultOnce(r.Pos, "", "attribute %q is composed of %q, which is composed itself: name its parts here", name, part)
			}
			if used {
				t.parts = append(t.parts, b.id(part))
			}
		}
		if used {
			v.templates = append(v.templates, t)
		}
	}
}

// splitTemplate takes "{method} {path}" apart. The loader has seen to it that braces come in pairs.
func splitTemplate(text string) (literals, parts []string) {
	for {
		literal, rest, found := strings.Cut(text, "{")
		literals = append(literals, literal)
		if !found {
			return literals, parts
		}
		var part string
		part, text, _ = strings.Cut(rest, "}")
		parts = append(parts, part)
	}
}
