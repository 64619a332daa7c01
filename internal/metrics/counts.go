package metrics

import "github.com/envoy-rls/envoy-rls/pkg/ratelimit"

// Counts are what one policy has said about requests since it came into use.
type Counts struct {
	Policy string
	// Allowed and Denied are those of a policy that is enforced, WouldAllow and WouldDeny those of one in shadow mode.
	Allowed, Denied, WouldAllow, WouldDeny uint64
	// BySource divides Allowed and Denied by who decided: see ratelimit.Source.
	BySource [sources]uint64
}

// Counts appends the counts of each policy of the set in use to dst, in its order.
func (m *Metrics) Counts(dst []Counts) []Counts {
	t := m.policies.current.Load()
	if t == nil {
		return dst
	}
	for _, c := range t.rows {
		n := Counts{Policy: c.id}
		for s := range sources {
			source := ratelimit.Source(s)
			a, d := c.decisions(allowed, source), c.decisions(denied, source)
			n.BySource[s] = a + d
			n.Allowed += a
			n.Denied += d
			n.WouldAllow += c.decisions(shadowAllowed, source)
			n.WouldDeny += c.decisions(shadowDenied, source)
		}
		dst = append(dst, n)
	}
	return dst
}

// Unanswered is how many of the counted decisions were made for want of the store's answer: by shares, or by policies that are open or closed then.
func (c *Counts) Unanswered() uint64 {
	return c.BySource[ratelimit.FromLocal] + c.BySource[ratelimit.FromOpen] + c.BySource[ratelimit.FromClosed]
}
