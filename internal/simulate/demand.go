package simulate

import (
	"math"
	"slices"
)

// event is one request under one policy: what its bucket was asked, and when.
type event struct {
	at   int64 // microseconds
	key  uint32
	cost uint32 // 0 only looks
}

// mostCost is what larger costs count as in the search for suggestions.
const mostCost = math.MaxUint32

// timeline is the demand on a policy under its own numbers.
type timeline struct {
	events []event
	halved uint // of 2^halved keys, one is kept
	cut    bool // what came later is missing
}

// maxHalved is how often keys are dropped: as many bits of their hashes say which.
const maxHalved = 16

// keeps reports whether the timeline is to have the events of a key. Which keys it keeps depends on nothing but their hashes.
func (l *timeline) keeps(id keyID) bool {
	bits := uint(id[14])<<8 | uint(id[15])
	return bits&(1<<l.halved-1) == 0
}

// demand bounds the timelines of all policies together.
type demand struct {
	most, held int
	keys       *keys
	timelines  []*timeline
}

func (d *demand) add(l *timeline, e event) {
	if l.cut || !l.keeps(d.keys.counts[e.key].id) {
		return
	}
	if l.events == nil {
		d.timelines = append(d.timelines, l)
	}
	l.events = append(l.events, e)
	d.held++
	for d.held > d.most {
		d.shrink()
	}
}

// shrink drops half the keys of the longest timeline. Where a few keys ask for so much that the other half would not stand for all, it drops the
// later half of the events instead.
func (d *demand) shrink() {
	longest := d.timelines[0]
	for _, l := range d.timelines {
		if len(l.events) > len(longest.events) {
			longest = l
		}
	}
	all := len(longest.events)
	if !longest.cut && longest.halved < maxHalved && d.halve(longest) {
		d.held -= all - len(longest.events)
		return
	}
	longest.cut = true
	longest.events = longest.events[:all/2]
	d.held -= all - all/2
}

// halve drops the events of half the keys, unless these are nearly none or nearly all.
func (d *demand) halve(l *timeline) bool {
	half := timeline{halved: l.halved + 1}
	drop := func(e event) bool { return !half.keeps(d.keys.counts[e.key].id) }
	dropped, all := 0, len(l.events)
	for _, e := range l.events {
		if drop(e) {
			dropped++
		}
	}
	if dropped < all/4 || dropped > all-all/4 {
		return false
	}
	l.halved++
	l.events = slices.DeleteFunc(l.events, drop)
	return true
}
