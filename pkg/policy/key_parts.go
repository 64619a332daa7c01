package policy

import (
	"slices"
	"strings"
)

// Parts takes a key of p apart, to be shown to people: the attributes that it counts by, the one in the braces first, with their values as
// they stand in the key: escaped, and hashed if long. ok is false if k is no key of p, such as one from before p was changed, or if p is of no Set.
// Nothing may be decided by what it gives.
func (p *Policy) Parts(k Key) (parts []Part, ok bool) {
	if p.rest == nil {
		return nil, false
	}
	text := string(k.b)
	if p.Mode == Shadow {
		if text, ok = strings.CutSuffix(text, shadowSuffix); !ok {
			return nil, false
		}
	}
	name := p.Tag()
	if name == "" {
		return nil, text == p.rest.prefix
	}
	text, ok = strings.CutPrefix(text, "rl:{")
	tag, rest, closed := strings.Cut(text, "}")
	short, value, named := strings.Cut(tag, ":")
	rest, own := strings.CutPrefix(rest, p.rest.prefix)
	if !ok || !closed || !named || !own || short != rowOf(name).short {
		return nil, false
	}
	others := slices.DeleteFunc(slices.Clone(p.Key), func(a string) bool { return a == name })
	parts, ok = splitParts(rest, others)
	return append([]Part{{name, value}}, parts...), ok
}

// splitParts reads :SHORT:VALUE for each of the names. Of the attributes only one can have colons in its value: what comes after it is read
// from the end.
func splitParts(text string, names []string) (parts []Part, ok bool) {
	for len(names) > 0 {
		r := rowOf(names[0])
		if text, ok = strings.CutPrefix(text, ":"+r.short+":"); !ok {
			return nil, false
		}
		if r.colons {
			last, ok := splitLast(text, names)
			return append(parts, last...), ok
		}
		value, rest, more := strings.Cut(text, ":")
		if more {
			rest = ":" + rest
		}
		parts, names, text = append(parts, Part{names[0], value}), names[1:], rest
	}
	return parts, text == ""
}

// splitLast reads VALUE:SHORT:VALUE…, of which the first value may have colons.
func splitLast(text string, names []string) (parts []Part, ok bool) {
	for i := len(names) - 1; i > 0; i-- {
		at := strings.LastIndexByte(text, ':')
		if at < 0 {
			return nil, false
		}
		value := text[at+1:]
		if text, ok = strings.CutSuffix(text[:at], ":"+rowOf(names[i]).short); !ok {
			return nil, false
		}
		parts = append(parts, Part{names[i], value})
	}
	parts = append(parts, Part{names[0], text})
	slices.Reverse(parts)
	return parts, true
}
