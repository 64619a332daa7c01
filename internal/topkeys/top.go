package topkeys

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Policy has the busiest keys of one policy.
type Policy struct {
	Policy string `json:"policy"`
	// Hidden says that the policy is exposed to nobody: its keys are shown as hashes alone.
	Hidden  bool   `json:"hidden,omitempty"`
	Allowed []Item `json:"allowed"`
	Denied  []Item `json:"denied"` // by a shadow policy: would be
}

// Item is a key in hidden form.
type Item struct {
	// ID stands for the key, for as long as it is listed and the instance runs. Nobody can tell the key by it, and another instance gives it
	// another one.
	ID string `json:"id"`
	// Parts are what the key is made of. Empty if it is hidden, or if the policy was changed since.
	Parts []Part `json:"parts"`
	// Calls is how many calls there were lately: each counts half after HalfLife seconds. Up to Error of them may be those of other keys.
	Calls float64 `json:"calls"`
	Error float64 `json:"error,omitempty"`
}

// Part is an attribute and the end of its value: a third of it, four characters at most.
type Part struct {
	Attribute string `json:"attribute"`
	Ending    string `json:"ending"`
}

// least is the count below which a key is not shown.
const least = 0.5

// Top lists the keys of each policy that has any: at most n allowed and n denied ones, the most first. Policies come in the order of their
// set.
func (k *Keys) Top(n int) []Policy {
	t := k.current.Load()
	all := []Policy{}
	if t == nil {
		return all
	}
	for i := range t.rows {
		r := &t.rows[i]
		p := t.set.Policies()[i]
		view := Policy{
			Policy: strings.ToValidUTF8(p.ID, "\uFFFD"), Hidden: p.Expose == policy.ExposeNever,
			Allowed: top(&r.allowed, p, n), Denied: top(&r.denied, p, n),
		}
		if len(view.Allowed)+len(view.Denied) > 0 {
			all = append(all, view)
		}
	}
	return all
}

func top(at *atomic.Pointer[list], p *policy.Policy, n int) []Item {
	items := []Item{}
	l := at.Load()
	if l == nil {
		return items
	}
	entries := slices.DeleteFunc(l.entries(), func(e entry) bool { return e.count < least })
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(b.count-b.error, a.count-a.error), cmp.Compare(b.count, a.count), cmp.Compare(a.id, b.id))
	})
	for _, e := range entries[:min(n, len(entries))] {
		items = append(items, Item{ID: formatID(e.id), Parts: hide(p, e.key), Calls: e.count, Error: e.error})
	}
	return items
}

func formatID(id uint64) string { return fmt.Sprintf("%016x", id) }

// Bucket is what an id stands for.
type Bucket struct {
	Policy  string
	Key     policy.Key
	Numbers *policy.Numbers // by which it was decided last
}

// Resolve finds the bucket that has this id, if it is listed still.
func (k *Keys) Resolve(id string) (Bucket, bool) {
	n, err := strconv.ParseUint(id, 16, 64)
	t := k.current.Load()
	if err != nil || t == nil || id != formatID(n) {
		return Bucket{}, false
	}
	for i := range t.rows {
		r := &t.rows[i]
		for _, l := range []*list{r.denied.Load(), r.allowed.Load()} {
			if l == nil {
				continue
			}
			if key, numbers, ok := l.find(n); ok {
				return Bucket{t.set.Policies()[i].ID, key, numbers}, true
			}
		}
	}
	return Bucket{}, false
}

// hide shows the ends of what a key is made of, unless its policy shows nothing to anybody.
func hide(p *policy.Policy, key policy.Key) []Part {
	parts, ok := p.Parts(key)
	hidden := []Part{}
	if !ok || p.Expose == policy.ExposeNever {
		return hidden
	}
	for _, part := range parts {
		hidden = append(hidden, Part{strings.ToValidUTF8(part.Name, "\uFFFD"), Ending(part.Value)})
	}
	return hidden
}

// Ending is what may be shown of a value that tells who somebody is: its last characters, a third of it and four at most.
func Ending(value string) string {
	runes := []rune(strings.ToValidUTF8(value, "\uFFFD"))
	return string(runes[len(runes)-min(4, len(runes)/3):])
}
