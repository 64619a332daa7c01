package redisbackend

import (
	"bytes"
	"context"
	"slices"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// split makes the parts: one for each slot, or one for all if slots don't matter.
func (g *group) split(slotted bool) {
	g.parts = g.parts[:0]
	n := len(g.buckets)
	for i := len(g.index); i < n; i++ {
		g.index = append(g.index, i)
	}
	if !slotted || sameTag(g.buckets) {
		for i := range n {
			g.index[i] = i
		}
		g.parts = append(g.parts, part{at: g.index[:n]})
		return
	}
	g.slots = g.slots[:0]
	for i := range g.buckets {
		g.slots = append(g.slots, slotOf(hashTag(g.buckets[i].Key.Bytes())))
	}
	used := 0
	for i, slot := range g.slots {
		if slices.Contains(g.slots[:i], slot) {
			continue
		}
		begin := used
		for j := i; j < n; j++ {
			if g.slots[j] == slot {
				g.index[used] = j
				used++
			}
		}
		g.parts = append(g.parts, part{at: g.index[begin:used:used]})
	}
}

func sameTag(buckets []ratelimit.Bucket) bool {
	if len(buckets) == 1 {
		return true
	}
	first := hashTag(buckets[0].Key.Bytes())
	for i := range buckets[1:] {
		if !bytes.Equal(hashTag(buckets[i+1].Key.Bytes()), first) {
			return false
		}
	}
	return true
}

// decide decides over several slots: first those that have a say, then those with shadow buckets only, which are charged if all others
// admit, and else only looked at. In the end it gives back what was taken for a request that was denied.
func (g *group) decide(ctx context.Context) {
	g.open = g.deniableParts() > 1
	for i := range g.parts {
		if !g.shadowed(i) {
			g.send(ctx, i, g.buckets)
		}
	}
	g.finish(ctx)
	denied, failed := g.verdict()
	g.open = false // whoever is asked from here on decides nothing
	shadows := g.buckets
	if denied || failed {
		shadows = g.peeks()
	}
	for i := range g.parts {
		switch {
		case !g.shadowed(i):
		case g.over:
			g.fail(&g.parts[i], &Error{Reason: ReasonUnsent, err: context.DeadlineExceeded})
		default:
			g.send(ctx, i, shadows)
		}
	}
	g.finish(ctx)
	if denied {
		g.giveBack(ctx)
	}
}

// shadowed reports whether a part has nothing but shadow buckets, which take part in nothing.
func (g *group) shadowed(number int) bool {
	for _, i := range g.parts[number].at {
		if b := &g.buckets[i]; !b.Shadow || !takes(b.Op) {
			return false
		}
	}
	return true
}

// deniableParts is how many parts can deny the call.
func (g *group) deniableParts() int {
	n := 0
	for i := range g.parts {
		if slices.ContainsFunc(g.parts[i].at, g.deniable) {
			n++
		}
	}
	return n
}

func (g *group) deniable(i int) bool {
	return !g.buckets[i].Shadow && g.buckets[i].Op.Deniable()
}

// verdict is what the enforced buckets say so far.
func (g *group) verdict() (denied, failed bool) {
	for i := range g.buckets {
		b, r := &g.buckets[i], &g.results[i]
		if b.Shadow || !takes(b.Op) {
			continue
		}
		denied = denied || r.Err == nil && r.Outcome == ratelimit.Denied
		failed = failed || r.Err != nil
	}
	return denied, failed
}

// peeks are the buckets with every Take made a Peek.
func (g *group) peeks() []ratelimit.Bucket {
	g.changed = append(g.changed[:0], g.buckets...)
	for i := range g.changed {
		if g.changed[i].Op == ratelimit.Take {
			g.changed[i].Op = ratelimit.Peek
		}
	}
	return g.changed
}
