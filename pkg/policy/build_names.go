package policy

import (
	"fmt"
	"slices"
)

// naming says which entries of a view's requests give which attributes.
type naming struct {
	renamed  map[string]AttributeRule // by entry key
	composed map[string]AttributeRule // by attribute
	// given are the attributes that the files' tables give, by an entry or composed; ownForm are those of them that need not
	// look as they do by default.
	given, ownForm map[string]bool
}

// naming joins the tables of a view's files, and adds the defaults for what they don't mention.
func (b *builder) naming(files []*File) naming {
	n := naming{map[string]AttributeRule{}, map[string]AttributeRule{}, map[string]bool{}, map[string]bool{}}
	for _, f := range files {
		for _, r := range f.Attributes {
			table, what, gives := n.renamed, r.Attribute, r.Attribute
			if r.Template != "" {
				table, what, gives = n.composed, r.Template, r.Name
			}
			if other, ok := table[r.Name]; ok && other.Attribute+other.Template != what {
				b.faultOnce(r.Pos, "", "attribute %q is already given another meaning at %s", r.Name, other.Pos)
				continue
			}
			table[r.Name] = r
			n.given[gives] = true
			n.ownForm[gives] = n.ownForm[gives] || r.Template == "" || r.Template != defaultTemplates[gives]
		}
	}
	for name, text := range defaultTemplates {
		if _, ok := n.composed[name]; !ok {
			n.composed[name] = AttributeRule{Name: name, Template: text}
		}
	}
	for entry, name := range defaultEntries {
		if _, ok := n.renamed[entry]; !ok {
			n.renamed[entry] = AttributeRule{Name: entry, Attribute: name}
		}
	}
	return n
}

// checkNames refuses, wherever a view's files name an attribute, the key of an entry that gives another one: no request would ever
// have such an attribute.
func (b *builder) checkNames(v *View, n naming, files []*File) {
	for _, f := range files {
		for _, r := range f.Attributes {
			b.checkRule(n, r)
		}
	}
	for _, p := range v.policies {
		for i, name := range p.Key {
			b.checkName(n, p.keyPos[i], "key", name)
		}
		b.checkName(n, p.tagPos, "hashTag", p.HashTag)
		for _, c := range p.conditions() {
			b.checkName(n, c.Pos, "match", c.Attribute)
			b.checkForm(n, c)
		}
	}
}

// checkRule looks at what a line of an attributes table names. That line may give a name which is an entry's key by its own
// file's word, but hardly one which is by default.
func (b *builder) checkRule(n naming, r AttributeRule) {
	gives := r.Attribute
	if r.Template != "" {
		gives = r.Name
		_, parts := splitTemplate(r.Template)
		for _, part := range parts {
			b.checkName(n, r.Pos, fmt.Sprintf("the template of %s needs", r.Name), part)
		}
	}
	if other := n.renamed[gives]; other.Attribute == defaultEntries[gives] && other.Attribute != "" {
		b.misnamed(r.Pos, "attribute", gives, other.Attribute)
	}
}

func (b *builder) checkName(n naming, pos Position, where, name string) {
	r, isEntry := n.renamed[name]
	if isEntry && r.Attribute != name && !n.given[name] {
		b.misnamed(pos, where, name, r.Attribute)
	}
}

func (b *builder) misnamed(pos Position, where, name, attribute string) {
	b.faultOnce(pos, "write "+attribute, "%s %s: entries %s give attribute %s", where, name, name, attribute)
}

// conditions are all that the policy compares: its own and its overrides'.
func (p *Policy) conditions() []Condition {
	all := slices.Clone(p.Match)
	for _, o := range p.Overrides {
		all = append(all, o.Match...)
	}
	return all
}
