package descriptors

import "github.com/envoy-rls/envoy-rls/pkg/ratelimit"

// Begin starts the call of l that decides r. It is the one way from Envoy's request to a decision: what serves, explains and tests requests
// cannot differ. The caller must Release the call, and leaves r unchanged until then.
func (r *Request) Begin(l *ratelimit.Limiter) *ratelimit.Call {
	call := l.Begin(r.Domain)
	r.Fill(call)
	return call
}

// Fill gives to the attributes that r's entries are, each descriptor a group of its own, and what r costs: hits_addend, of which 0
// means that none was said; a descriptor's own wins for the policies that it feeds, and there 0 only looks.
func (r *Request) Fill(to *ratelimit.Call) {
	if r.HitsAddend != 0 {
		to.SetCost(uint64(r.HitsAddend))
	}
	if r.Truncated {
		to.SetPartial()
	}
	for i := range r.Descriptors {
		d := &r.Descriptors[i]
		for j := range d.Entries {
			to.Add(i, d.Entries[j].Key, d.Entries[j].Value)
		}
		switch {
		case d.HasHits:
			to.SetGroupCost(i, d.HitsAddend, d.IsNegativeHits)
		case d.IsNegativeHits:
			to.SetGroupCost(i, max(1, uint64(r.HitsAddend)), true)
		}
	}
}
