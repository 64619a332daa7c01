package rlheaders

import (
	"encoding/binary"
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
	names   [][]byte  // the same order: the names for the problem body
	long    [][]byte  // items that have no room in numbers
}

// numbers are those of one policy or override: "free";q=20;w=12. The name is what it begins with. They are one line of the processor's cache, since
// every answer reads them, and of ten thousand policies each is cold.
type numbers struct {
	item uint16 // its length; 0: not to be told of in header fields
	name uint16 // its length, as a structured-field string
	text [60]byte
}

// policyItem gives an item. One that has no room begins with its place in long.
func (t *templates) policyItem(n *numbers) []byte {
	if int(n.item) <= len(n.text) {
		return n.text[:n.item]
	}
	return t.long[binary.NativeEndian.Uint32(n.text[:])]
}

func (t *templates) name(n *numbers) []byte { return t.policyItem(n)[:n.name] }

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
	n := len(set.Numbers())
	t := &templates{set: set, numbers: make([]numbers, n), names: make([][]byte, n)}
	for _, p := range set.Policies() {
		name, err := json.Marshal(p.Name)
		if err != nil {
			panic(err) // a string
		}
		add := func(n *policy.Numbers) {
			t.names[n.Index] = name
			if !slices.Contains(r.Elsewhere, p.Name) {
				t.addItem(p, n)
			}
		}
		add(&p.Numbers)
		for i := range p.Overrides {
			add(&p.Overrides[i].Numbers)
		}
	}
	return t
}

func (t *templates) addItem(p *policy.Policy, n *policy.Numbers) {
	q, w := Quota(p, n)
	item := httpsfv.NewItem(p.Name)
	out := &t.numbers[n.Index]
	out.name = uint16(len(marshal(item)))
	item.Params.Add("q", q)
	item.Params.Add("w", w)
	text := marshal(item)
	out.item = uint16(len(text))
	if copy(out.text[:], text) < len(text) {
		binary.NativeEndian.PutUint32(out.text[:], uint32(len(t.long)))
		t.long = append(t.long, []byte(text))
	}
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
