package rlheaders

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// templates are the unchanging parts of all answers under one policy set. Of ten thousand policies each is cold to the processor, so they have next to
// nothing of their own here: most have the same parameters as others, and are named by their id, which was read already.
type templates struct {
	set     *policy.Set
	kinds   []template
	numbers []uint32 // by policy.Numbers.Index: a place in kinds
}

// template is what is said of a policy or override: "free";q=20;w=12.
type template struct {
	field  string // the name as a structured-field string; empty: the policy's id, in quotes
	json   string // the name in JSON; empty where field is
	params string
	hidden bool // not to be told of in header fields
}

func (t *templates) of(c *ratelimit.Check) *template { return &t.kinds[t.numbers[c.Numbers.Index]] }

func (t *template) appendField(b []byte, c *ratelimit.Check) []byte { return appendName(b, t.field, c) }

func (t *template) appendJSON(b []byte, c *ratelimit.Check) []byte { return appendName(b, t.json, c) }

func appendName(b []byte, name string, c *ratelimit.Check) []byte {
	if name != "" {
		return append(b, name...)
	}
	return append(append(append(b, '"'), c.Policy.ID...), '"')
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
	t := &templates{set: set, numbers: make([]uint32, len(set.Numbers()))}
	places := map[template]uint32{}
	for _, p := range set.Policies() {
		named := r.named(p)
		add := func(n *policy.Numbers) {
			one := named
			one.params = params(p, n)
			place, ok := places[one]
			if !ok {
				place = uint32(len(t.kinds))
				places[one], t.kinds = place, append(t.kinds, one)
			}
			t.numbers[n.Index] = place
		}
		add(&p.Numbers)
		for i := range p.Overrides {
			add(&p.Overrides[i].Numbers)
		}
	}
	return t
}

// named is a template with all but the parameters.
func (r *Renderer) named(p *policy.Policy) template {
	name, err := json.Marshal(p.Name)
	if err != nil {
		panic(err) // a string
	}
	t := template{field: marshal(httpsfv.NewItem(p.Name)), json: string(name), hidden: slices.Contains(r.Elsewhere, p.Name)}
	if id := `"` + p.ID + `"`; t.field == id && t.json == id {
		t.field, t.json = "", ""
	}
	return t
}

func params(p *policy.Policy, n *policy.Numbers) string {
	q, w := Quota(p, n)
	item := httpsfv.NewItem(true)
	item.Params.Add("q", q)
	item.Params.Add("w", w)
	return strings.TrimPrefix(marshal(item), "?1")
}

// marshal serialises an item by RFC 9651. The loader refuses names and numbers that have no serialisation.
func marshal(item httpsfv.Item) string {
	s, err := httpsfv.Marshal(item)
	if err != nil {
		panic(err)
	}
	return s
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

// resetOf is t in seconds, rounded up: after a denial until the call would be admitted, otherwise the time in which r calls are
// sustained, or until there is one when there is none.
func resetOf(c *ratelimit.Check, r int64) (t int64, ok bool) {
	switch {
	case c.Denied():
		return Seconds(c.Result.Wait), true
	case c.Numbers.Kind == algorithm.SlidingLog:
		return Seconds(c.Result.Reset), c.Result.Reset > 0
	case r == 0:
		const micro = int64(time.Second / time.Microsecond)
		wait := algorithm.Tokens{Level: c.Result.Remaining}.Wait(c.Numbers.Limits, 1, 0)
		return wait/micro + min(1, wait%micro), true
	}
	if c.Numbers.Unit == 0 {
		return 0, false // not from a policy file
	}
	perSecond := c.Numbers.Refill / time.Duration(c.Numbers.Unit).Seconds()
	return int64(min(math.Ceil(float64(r)/perSecond), maxInteger)), true
}
