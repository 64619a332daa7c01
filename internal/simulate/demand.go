package simulate

import "math"

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
	cut    bool // even a single key was too much: what came later is missing
}

// maxHalved is after how many times no more is to be won by dropping keys.
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

// shrink drops half the keys of the longest timeline, or ends it.
func (d *demand) shrink() {
	var longest *timeline
	for _, l := range d.timelines {
		if !l.cut && (longest == nil || len(l.events) > len(longest.events)) {
			longest = l
		}
	}
	if longest.halved == maxHalved {
		longest.cut = true
		d.most = d.held
		return
	}
	longest.halved++
	kept := longest.events[:0]
	for _, e := range longest.events {
		if longest.keeps(d.keys.counts[e.key].id) {
			kept = append(kept, e)
		}
	}
	d.held -= len(longest.events) - len(kept)
	longest.events = kept
}
