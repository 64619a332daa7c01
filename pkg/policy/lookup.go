package policy

// ViewOf is the part of the set that the policy's file serves: its domain, or for a file without one the domains that no file names.
func (s *Set) ViewOf(p *Policy) *View { return s.View([]byte(p.Domain)) }

// Policy is the policy with an id; nil if there is none.
func (s *Set) Policy(id string) *Policy {
	for _, p := range s.policies {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// Composed gives the template of an attribute that is composed of others, such as "{method} {path}", for requests that policy p of the set
// decides: the texts around the parts, one more than parts. No parts: it is not composed.
func (s *Set) Composed(p *Policy, attribute string) (literals, parts []string) {
	for _, t := range s.ViewOf(p).templates {
		if s.attributes[t.attribute].name != attribute {
			continue
		}
		for _, id := range t.parts {
			parts = append(parts, s.attributes[id].name)
		}
		return t.literals, parts
	}
	return nil, nil
}

// KeyPos is where the i-th attribute of the key is written.
func (p *Policy) KeyPos(i int) Position { return p.keyPos[i] }

// TagPos is where HashTag is written.
func (p *Policy) TagPos() Position { return p.tagPos }

// Folds reports whether the policy compares and counts values of an attribute without regard to letter case.
func (p *Policy) Folds(attribute string) bool {
	return p.Normalize == NormalizeLower && rowOf(attribute).text
}
