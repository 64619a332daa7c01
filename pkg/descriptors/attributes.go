package descriptors

import (
	"fmt"
	"math"
)

// Attribute is a fact about a request, as people write it: by the name of an entry or an attribute.
type Attribute struct {
	Name, Value string
}

// SetAttributes makes r's descriptors of attributes: the n-th value of a name goes to the n-th descriptor. The error names an attribute with more
// than MaxDescriptors values; r is then meaningless.
func (r *Request) SetAttributes(attributes []Attribute) error {
	r.Descriptors = r.Descriptors[:0]
	seen := map[string]int{}
	for _, a := range attributes {
		n := seen[a.Name]
		if seen[a.Name]++; n == MaxDescriptors {
			return fmt.Errorf("%s: more than %d values of one attribute", a.Name, n)
		}
		if n == len(r.Descriptors) {
			r.Descriptors = append(r.Descriptors, Descriptor{})
		}
		d := &r.Descriptors[n]
		if len(d.Entries) == MaxEntries {
			r.Truncated = true
			continue
		}
		d.Entries = append(d.Entries, Entry{Key: []byte(a.Name), Value: []byte(a.Value)})
	}
	return nil
}

// SetCost gives r a cost, in the field of the protocol that has room for it. 0 only looks; refund gives back instead.
func (r *Request) SetCost(cost uint64, refund bool) {
	if 0 < cost && cost <= math.MaxUint32 && !refund {
		r.HitsAddend = uint32(cost)
		return
	}
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		d.HasHits, d.HitsAddend, d.IsNegativeHits = true, cost, refund
	}
}
