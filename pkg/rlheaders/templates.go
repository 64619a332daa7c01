package rlheaders

import (
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// templates are the unchanging parts of all answers under one policy set.
type templates struct {
	set     *policy.Set
	numbers []numbers // by policy.Numbers.Index
}

// numbers are those of one policy or override.
type numbers struct {
	limits     algorithm.Limits
	name       []byte // as a structured-field string: "free"
	policyItem []byte // "free";q=20;w=12
	jsonName   []byte // the name for the problem body
	perSecond  float64
	elsewhere  bool // not to be told of in header fields
}

// templates gives those of set. While a reload is under way two of them may be made in turn, which costs time only.
func (r *Renderer) templates(set *policy.Set) *templates {
	for i := range r.kept {
		if t := r.kept[i].Load(); t != nil && t.set == set {
			return t
		}
	}
	t := r.newTemplates(set)
	r.kept[r.last.Add(1)%uint32(len(r.kept))].Store(t)
	return t
}

func (r *Renderer) newTemplates(set *policy.Set) *templates {
	t := &templates{set: set, numbers: make([]numbers, len(set.Numbers()))}
	for _, p := range set.Policies() {
		t.numbers[p.Numbers.Index] = r.newNumbers(p, &p.Numbers)
		for i := range p.Overrides {
			n := &p.Overrides[i].Numbers
			t.numbers[n.Index] = r.newNumbers(p, n)
		}
	}
	return t
}

func (r *Renderer) newNumbers(p *policy.Policy, n *policy.Numbers) numbers {
	q, w := Quota(p, n)
	item := httpsfv.NewItem(p.Name)
	name := marshal(item)
	item.Params.Add("q", q)
	item.Params.Add("w", w)
	jsonName, err := json.Marshal(p.Name)
	if err != nil {
		panic(err) // a string
	}
	out := numbers{limits: n.Limits, name: name, policyItem: marshal(item), jsonName: jsonName}
	out.elsewhere = slices.Contains(r.Elsewhere, p.Name)
	if n.Unit != 0 {
		out.perSecond = n.Refill / time.Duration(n.Unit).Seconds()
	}
	return out
}

// marshal serialises an item by RFC 9651. The loader refuses names and numbers that have no serialisation.
func marshal(item httpsfv.Item) []byte {
	s, err := httpsfv.Marshal(item)
	if err != nil {
		panic(err)
	}
	return []byte(s)
}

// Quota gives what a policy advertises: q, and w in seconds. For a token bucket q is the burst and w the time to refill it, or
// with advertise: sustained the refill and its unit; for a sliding log they are its limit and window.
func Quota(p *policy.Policy, n *policy.Numbers) (q, w int64) {
	switch {
	case n.Kind == algorithm.SlidingLog:
		return int64(n.Capacity), Seconds(time.Duration(n.Window) * time.Microsecond)
	case p.Advertise == policy.AdvertiseSustained:
		return int64(n.Refill), int64(time.Duration(n.Unit).Seconds())
	}
	w = int64(math.Ceil(n.Capacity * time.Duration(n.Unit).Seconds() / n.Refill))
	return int64(n.Capacity), max(1, w)
}

// reset is t in seconds, rounded up: after a denial until the call would be admitted, otherwise the time in which r calls are
// sustained, or until there is one when there is none.
func (n *numbers) reset(c *ratelimit.Check, r int64) (t int64, ok bool) {
	switch {
	case c.Denied():
		return Seconds(c.Result.Wait), true
	case n.limits.Kind == algorithm.SlidingLog:
		return Seconds(c.Result.Reset), c.Result.Reset > 0
	case r == 0:
		const micro = int64(time.Second / time.Microsecond)
		wait := algorithm.Tokens{Level: c.Result.Remaining}.Wait(n.limits, 1, 0)
		return wait/micro + min(1, wait%micro), true
	}
	return int64(min(math.Ceil(float64(r)/n.perSecond), maxInteger)), true
}
