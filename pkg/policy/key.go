package policy

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
)

// MaxKeyBytes is the longest key that this package makes. A policy whose keys could be longer is a load error.
const MaxKeyBytes = 512

const (
	maxValueBytes = 64 // escaped; a longer value stands in a key as hashMark and hashHexBytes of its SHA-256
	hashMark      = '#'
	hashHexBytes  = 32
	shadowSuffix  = ":shadow"
)

// Key identifies a bucket: rl:{TAG}:POLICY:PART… with the hash tag in braces, so that buckets of one tag live in one Redis
// Cluster slot. Two different inputs never give the same key. Compare keys by their bytes; never take one apart.
type Key struct{ b []byte }

// Bytes is the key. The caller must not change it, and must copy it to keep it longer than the request it came from.
func (k Key) Bytes() []byte { return k.b }

// String is a copy of the key.
func (k Key) String() string { return string(k.b) }

// KeyOf is the key with these bytes, which it keeps, as another instance has made it. ok is false for what this package never makes.
func KeyOf(b []byte) (k Key, ok bool) {
	const least = len("rl:{id:}:")
	if len(b) < least || len(b) > MaxKeyBytes || !bytes.HasPrefix(b, []byte("rl:{")) || bytes.Count(b, []byte("{")) != 1 || bytes.Count(b, []byte("}:")) != 1 {
		return Key{}, false
	}
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return Key{}, false
		}
	}
	return Key{b}, true
}

// Hidden stands for the key where people look who may not see what is counted by: # and 12 hexadecimal digits of its SHA-256. The same key is
// hidden the same way by every instance; who can guess a key can check the guess.
func (k Key) Hidden() string { return HideKey(k.b) }

// HideKey is the hidden form of a key's bytes.
func HideKey(key []byte) string {
	sum := sha256.Sum256(key)
	return "#" + hex.EncodeToString(sum[:6])
}

// Tag is what stands in the braces: equal for the buckets of one tag, whatever their policies. The caller must not change it. Empty for
// the zero Key.
func (k Key) Tag() []byte {
	_, rest, _ := bytes.Cut(k.b, []byte{'{'})
	tag, _, _ := bytes.Cut(rest, []byte{'}'})
	return tag
}

// Clone is a copy that may be kept.
func (k Key) Clone() Key { return Key{bytes.Clone(k.b)} }

// CloneInto is Clone into the memory of old, which must not be used any more: it allocates only if that is too small.
func (k Key) CloneInto(old Key) Key { return Key{append(old.b[:0], k.b...)} }

// Part is one part of a key: an attribute and its canonical value.
type Part struct{ Name, Value string }

// NewKey makes the key of a bucket outside of any policy file: for tests of stores and for tools. The zero tag stands
// for a policy that counts everything in one bucket.
func NewKey(tag Part, policyID string, parts ...Part) Key {
	b := []byte("rl:{")
	if tag.Name == "" {
		b = appendValue(append(b, "id:"...), []byte(policyID), false)
	} else {
		r := rowOf(tag.Name)
		b = appendPart(b, r.short, []byte(tag.Value), r.colons)
	}
	b = appendValue(append(b, "}:"...), []byte(policyID), false)
	for _, p := range parts {
		r := rowOf(p.Name)
		b = appendPart(append(b, ':'), r.short, []byte(p.Value), r.colons)
	}
	return Key{b}
}

// appendPart adds SHORT:VALUE.
func appendPart(b []byte, short string, value []byte, colons bool) []byte {
	b = append(append(b, short...), ':')
	return appendValue(b, value, colons)
}

// appendValue adds a value that can neither end its part nor open or close a brace, in at most maxValueBytes.
func appendValue(b, value []byte, colons bool) []byte {
	start := len(b)
	if len(value) <= maxValueBytes {
		for i, c := range value {
			if !plain[c] && (c != ':' || !colons) {
				b = appendEscaped(b, value[i:], colons)
				break
			}
			b = append(b, c)
		}
		if len(b)-start <= maxValueBytes {
			return b
		}
	}
	sum := sha256.Sum256(value)
	b = append(b[:start], hashMark)
	return hex.AppendEncode(b, sum[:hashHexBytes/2])
}

func appendEscaped(b, value []byte, colons bool) []byte {
	const digits = "0123456789ABCDEF"
	for _, c := range value {
		if plain[c] || c == ':' && colons {
			b = append(b, c)
			continue
		}
		b = append(b, '%', digits[c>>4], digits[c&15])
	}
	return b
}

// plain are the bytes that stand for themselves in a key. Not among them: the separator, the braces, the escape and the mark
// of a hash.
var plain = func() (t [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~@+=,/*!$&'()") {
		t[c] = true
	}
	return t
}()
