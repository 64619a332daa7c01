package policy

import (
	"strings"

	"github.com/goccy/go-yaml/ast"
)

var fileFields = []string{"domain", "attributes", "ipv6Prefix", "policies"}

// file reads the whole document.
func (l *loader) file(file *File, root ast.Node) {
	o, ok := l.object(root, "a policy file", fileFields)
	if !ok {
		return
	}
	if domain, f, ok := l.text(&o, "domain"); ok {
		if file.Domain = domain; domain == "" {
			l.fault(f.pos, "leave domain out to serve every domain", "domain is empty")
		}
	}
	if n, f, ok := l.number(&o, "ipv6Prefix", true); ok {
		file.IPv6Prefix, file.IPv6PrefixPos = int(n), f.pos
		if n < 1 || n > 128 {
			l.fault(f.pos, "", "ipv6Prefix must be from 1 to 128")
		}
	}
	if f, ok := o.fields["attributes"]; ok {
		file.Attributes = l.attributes(f)
	}
	l.missing(&o, "policies", "write policies: [] if there are none")
	if f, ok := o.fields["policies"]; ok {
		nodes, _ := l.list(f, "policies: [] if there are none")
		for _, n := range nodes {
			file.Policies = append(file.Policies, l.policy(n, file.Domain))
		}
	}
}

// attributes reads the table that renames entries and composes attributes.
func (l *loader) attributes(f field) []AttributeRule {
	lines, _ := l.mapping(f.value, "attributes")
	rules := make([]AttributeRule, 0, len(lines))
	for _, line := range lines {
		text, ok := scalar(line.value)
		if !ok {
			l.fault(line.pos, `write the attribute's name, or a template such as "{method} {path}"`,
				"attributes: %q is text, not %s", line.name, kindOf(line.value))
			continue
		}
		rule := AttributeRule{Name: line.name, Pos: line.key}
		if strings.ContainsAny(text, "{}") {
			rule.Template = text
			l.attributeName(line.key, line.name)
			l.template(line, text)
		} else {
			rule.Attribute = text
			l.attributeName(line.pos, text)
			if line.name == "" {
				l.fault(line.key, "", "an entry's key cannot be empty")
			}
		}
		rules = append(rules, rule)
	}
	return rules
}

// template checks the placeholders of a composed attribute.
func (l *loader) template(line field, text string) {
	for rest := text; ; {
		open := strings.IndexAny(rest, "{}")
		if open < 0 {
			return
		}
		end := strings.IndexAny(rest[open+1:], "{}")
		if rest[open] == '}' || end < 0 || rest[open+1+end] == '{' {
			l.fault(line.pos, `as in "{method} {path}"`, "the braces of a template must come in pairs")
			return
		}
		name := rest[open+1 : open+1+end]
		l.attributeName(line.pos, name)
		if name == line.name {
			l.fault(line.pos, "", "attribute %q is composed from itself", name)
		}
		rest = rest[open+end+2:]
	}
}

// maxName is the longest id, name or attribute name in bytes.
const maxName = 64

// attributeName refuses what cannot be the name of an attribute.
func (l *loader) attributeName(pos Position, name string) bool {
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '.' || c == '-') {
			l.fault(pos, "use letters, digits, _ . and -", "%q cannot be the name of an attribute", name)
			return false
		}
	}
	if name == "" || len(name) > maxName {
		l.fault(pos, "", "the name of an attribute has 1 to %d characters, not %d", maxName, len(name))
		return false
	}
	if known := knownAttribute(name); known != "" && known != name {
		l.fault(pos, "write "+known, "there is no attribute %s: letter case matters", name)
		return false
	}
	return true
}
