package policy

// WithHashedKeys gives s for explaining it to people who know an API key's hash but not the key: a value of apiKey that has
// the form of a hash stands for itself. Never decide requests by it: whoever knows a hash would pass for its key.
func (s *Set) WithHashedKeys() *Set {
	hashed := s.clone()
	hashed.attributes = make([]attribute, len(s.attributes))
	for i, at := range s.attributes {
		if at.name == "apiKey" {
			at.row.canonical = canonicalHash
		}
		hashed.attributes[i] = at
	}
	return hashed
}

func canonicalHash(buf, v []byte, ipv6Prefix int) ([]byte, verdict) {
	if hashedAPIKey(string(v)) {
		return v, valid
	}
	return canonicalAPIKey(buf, v, ipv6Prefix)
}

// LooksHashed reports whether value has the form in which API keys are compared, stored and shown: ak_ and 16 hexadecimal digits.
func LooksHashed(value string) bool { return hashedAPIKey(value) }

// Attribute names what an entry of a request gives; empty if no policy of the view has a use for it.
func (v *View) Attribute(entry []byte) string {
	if id, ok := v.entries[string(entry)]; ok {
		return v.set.attributes[id].name
	}
	return ""
}
