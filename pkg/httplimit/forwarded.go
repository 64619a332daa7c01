package httplimit

import (
	"net/netip"
	"strings"
)

// The fields by which proxies tell whom they speak for, as net/http spells them.
const (
	fieldForwardedFor = "X-Forwarded-For"
	fieldForwarded    = "Forwarded" // RFC 7239
)

// chain walks the nodes that proxies have noted, from the right: the one that the last proxy saw comes first. It looks at no more of the
// field than is asked for, since only the right end of it was written by proxies that are trusted: what a client has put in front, quotes
// that never end among it, must not change how that end is read.
type chain struct {
	lines     []string // one list, in order
	line      string   // what is left of the line under way
	forwarded bool
}

// next gives the next node; ok is false at the end. Empty elements do not count (RFC 9110, 5.6.1).
func (c *chain) next() (h host, ok bool) {
	for {
		for c.line = strings.TrimRight(c.line, " \t,"); c.line == ""; c.line = strings.TrimRight(c.line, " \t,") {
			if len(c.lines) == 0 {
				return host{}, false
			}
			last := len(c.lines) - 1
			c.line, c.lines = c.lines[last], c.lines[:last]
		}
		var element string
		c.line, element = cutLast(c.line, c.forwarded)
		if element = strings.Trim(element, " \t"); element == "" {
			continue
		}
		if !c.forwarded {
			return hostOf(element), true
		}
		node, _ := forwardedFor(element)
		return hostOf(node), true
	}
}

// cutLast cuts a list before its last element. With quotes, a comma inside a quoted string separates nothing. Elements are found from
// the end on; a quoted string read backwards ends at the first quote with an even number of backslashes in front.
func cutLast(list string, quotes bool) (rest, element string) {
	quoted := false
	for i := len(list) - 1; i >= 0; i-- {
		switch list[i] {
		case '"':
			if quotes && (!quoted || !escaped(list[:i])) {
				quoted = !quoted
			}
		case ',':
			if !quoted {
				return list[:i], list[i+1:]
			}
		}
	}
	return "", list
}

// escaped reports whether what follows s is escaped by it.
func escaped(s string) bool {
	return (len(s)-len(strings.TrimRight(s, `\`)))%2 == 1
}

// forwardedFor gives the parameter "for" of a forwarded-element (RFC 7239, 4); ok is false if there is none, or if it is no such element.
func forwardedFor(element string) (node string, ok bool) {
	for element = strings.TrimLeft(element, " \t;"); element != ""; element = strings.TrimLeft(element, " \t;") {
		name, value, found := strings.Cut(element, "=")
		if !found {
			return "", false
		}
		if value, element, found = cutValue(value); !found {
			return "", false
		}
		if !strings.EqualFold(strings.Trim(name, " \t"), "for") {
			continue
		}
		if ok { // a parameter occurs once at most
			return "", false
		}
		node, ok = value, true
	}
	return node, ok
}

// cutValue cuts a parameter's value, a token or a quoted string, from what follows its semicolon.
func cutValue(s string) (value, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		value, rest, _ = strings.Cut(s, ";")
		return strings.TrimRight(value, " \t"), rest, !strings.Contains(value, `"`)
	}
	end := 1
	for end < len(s) && (s[end] != '"' || escaped(s[1:end])) {
		end++
	}
	if end >= len(s) {
		return "", "", false
	}
	value, rest = s[1:end], strings.TrimLeft(s[end+1:], " \t")
	if strings.Contains(value, `\`) {
		value = unescape(value)
	}
	if rest == "" {
		return value, "", true
	}
	return value, rest[1:], rest[0] == ';'
}

// unescape drops the backslash of every pair (RFC 9110, 5.6.4).
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// host is the address of a node, as text without port, brackets and zone. It is empty if the node is hidden or malformed.
type host struct {
	text string
	addr netip.Addr
}

// hostOf gives the host of a node.
func hostOf(node string) host {
	const longest = 64 // an IPv6 address with brackets, a zone and a port; anything longer is no address
	if len(node) > longest {
		return host{}
	}
	if inner, after, ok := strings.Cut(strings.TrimPrefix(node, "["), "]"); ok && node[0] == '[' {
		if after != "" && after[0] != ':' {
			return host{}
		}
		node = inner
	} else if strings.Count(node, ":") == 1 {
		node, _, _ = strings.Cut(node, ":")
	}
	node, _, _ = strings.Cut(node, "%")
	addr, err := netip.ParseAddr(node)
	if err != nil {
		return host{}
	}
	return host{node, addr}
}
