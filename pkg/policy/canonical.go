package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"
	"unicode"
	"unicode/utf8"
	"unsafe"
)

// row says how one attribute becomes part of a key. A new kind of key part is one more row.
type row struct {
	attribute string
	short     string // its name in keys
	// canonical makes equal what means the same. It may return v, or append to buf and return what it appended; ok is
	// false if v is not of the attribute's form. Nil: any bytes, as they are.
	canonical func(buf, v []byte, ipv6Prefix int) (value []byte, verdict verdict)
	// text marks free text, to which a policy's normalize applies.
	text bool
	// colons says that a canonical value may hold colons and still never be mistaken for two parts.
	colons bool
	// opaque says that the canonical form does not start as the value does.
	opaque bool
}

// rows are the attributes that this package knows. Every other attribute is free text under its own name.
var rows = []row{
	{attribute: "tenant", short: "t", text: true},
	{attribute: "ip", short: "ip", canonical: canonicalIP, colons: true, opaque: true},
	{attribute: "apiKey", short: "k", canonical: canonicalAPIKey, opaque: true},
	{attribute: "username", short: "u", text: true},
	{attribute: "plan", short: "p", text: true},
	{attribute: "route", short: "r", canonical: canonicalRoute},
	{attribute: "path", short: "path", canonical: canonicalPath},
}

// defaultEntries are the entry keys that give an attribute of another name, unless a file's attributes table says otherwise.
var defaultEntries = map[string]string{
	"remote_address":        "ip",
	"masked_remote_address": "ip",
	"api_key":               "apiKey",
	"x-api-key":             "apiKey",
}

// defaultTemplates compose attributes that no entry gives.
var defaultTemplates = map[string]string{"route": "{method} {path}"}

func rowOf(attribute string) row {
	for _, r := range rows {
		if r.attribute == attribute {
			return r
		}
	}
	return row{attribute: attribute, short: attribute, text: true}
}

// knownAttribute gives the attribute that name means if letter case is left aside; "" if name is none of those that every file
// knows.
func knownAttribute(name string) string {
	for _, r := range rows {
		if strings.EqualFold(r.attribute, name) {
			return r.attribute
		}
	}
	if strings.EqualFold(name, "method") { // a part of the default route
		return "method"
	}
	return ""
}

// verdict is what canonical found.
type verdict uint8

const (
	valid   verdict = iota
	invalid         // not of the attribute's form; what came back is a value of its own, shared with no valid one
	refused         // of the form, but tells nothing: as if the attribute were missing
)

const (
	apiKeyPrefix = "ak_"
	apiKeyHex    = 16
)

// canonicalAPIKey hides the secret: only a hash goes on.
func canonicalAPIKey(buf, v []byte, _ int) ([]byte, verdict) {
	sum := sha256.Sum256(v)
	return hex.AppendEncode(append(buf, apiKeyPrefix...), sum[:apiKeyHex/2]), valid
}

// hashedAPIKey reports whether v is already what canonicalAPIKey makes: policy files name a key by its hash.
func hashedAPIKey(v string) bool {
	if len(v) != len(apiKeyPrefix)+apiKeyHex || v[:len(apiKeyPrefix)] != apiKeyPrefix {
		return false
	}
	_, err := hex.DecodeString(v[len(apiKeyPrefix):])
	return err == nil
}

// canonicalIP gives an IPv4 address as it is and an IPv6 address as its /ipv6Prefix. Ports, brackets and zones are
// dropped; IPv4-mapped, NAT64 and 6to4 addresses count as the IPv4 address they embed.
func canonicalIP(buf, v []byte, ipv6Prefix int) ([]byte, verdict) {
	addr, bits, ok := parseIP(v)
	if !ok {
		sum := sha256.Sum256(v)
		return hex.AppendEncode(append(buf, hashMark), sum[:hashHexBytes/2]), invalid
	}
	if addr.Is6() {
		v4, v4bits, lost := embeddedIPv4(addr, bits)
		if lost {
			return nil, refused
		}
		if v4.IsValid() {
			addr, bits = v4, v4bits
		}
	}
	if addr.Is4() {
		if bits == 32 {
			return addr.AppendTo(buf), valid
		}
		return netip.PrefixFrom(addr, bits).Masked().AppendTo(buf), valid
	}
	return netip.PrefixFrom(addr, min(bits, ipv6Prefix)).Masked().AppendTo(buf), valid
}

// parseIP reads an address with an optional port or prefix length. bits is the length, all bits where none is given.
func parseIP(v []byte) (addr netip.Addr, bits int, ok bool) {
	const longest = 64 // an IPv6 address with a zone, brackets and a port; anything longer is no address
	if v = bytes.TrimSpace(v); len(v) == 0 || len(v) > longest {
		return addr, 0, false
	}
	// ParseAddr keeps nothing of s but the zone, which it copies.
	s := unsafe.String(unsafe.SliceData(v), len(v))
	if a, err := netip.ParseAddr(s); err == nil {
		return a.WithZone(""), a.BitLen(), true
	}
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr(), p.Bits(), true
	}
	if p, err := netip.ParseAddrPort(s); err == nil {
		return p.Addr().WithZone(""), p.Addr().BitLen(), true
	}
	if s[0] == '[' && s[len(s)-1] == ']' {
		if a, err := netip.ParseAddr(s[1 : len(s)-1]); err == nil && a.Is6() {
			return a.WithZone(""), a.BitLen(), true
		}
	}
	return addr, 0, false
}

// embeddedIPv4 finds the IPv4 address inside an IPv6 address or prefix. lost is true if the prefix was cut before an embedded
// address: ::/64 is what Envoy makes of every IPv4-mapped peer, and would put all of them into one bucket.
func embeddedIPv4(a netip.Addr, bits int) (v4 netip.Addr, v4bits int, lost bool) {
	b := a.As16()
	switch {
	case a.Is4In6():
		if bits < 96 {
			return v4, 0, true
		}
		return a.Unmap(), bits - 96, false
	case bits < 96 && ([12]byte(b[:12]) == [12]byte{} || [12]byte(b[:12]) == nat64):
		return v4, 0, true
	case [12]byte(b[:12]) == nat64:
		return netip.AddrFrom4([4]byte(b[12:])), bits - 96, false
	case b[0] == 0x20 && b[1] == 0x02: // 6to4, RFC 3056
		if bits < 48 {
			return v4, 0, true
		}
		return netip.AddrFrom4([4]byte(b[2:6])), 32, false
	}
	return v4, 0, false
}

// nat64 is the well-known prefix 64:ff9b::/96 of RFC 6052.
var nat64 = [12]byte{0, 0x64, 0xff, 0x9b}

// appendLower adds v trimmed and in lower case. Bytes that are not UTF-8 stay as they are, so that no two different
// values of that kind become one.
func appendLower(buf, v []byte) []byte {
	v = bytes.TrimSpace(v)
	for i := 0; i < len(v); {
		if c := v[i]; c < utf8.RuneSelf {
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			buf = append(buf, c)
			i++
			continue
		}
		r, n := utf8.DecodeRune(v[i:])
		if r == utf8.RuneError && n == 1 {
			buf = append(buf, v[i])
			i++
			continue
		}
		buf = utf8.AppendRune(buf, unicode.ToLower(r))
		i += n
	}
	return buf
}
