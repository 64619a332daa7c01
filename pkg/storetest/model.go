package storetest

import (
	"slices"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// whole is one token in the model, which counts in whole numbers of its fractions. Rates in the model are whole numbers of
// fractions for a microsecond, so that a store's float64 arithmetic has nothing to round and must give the very same.
const whole = 1 << 20

// shape is a bucket of the model that never changes its limits.
type shape struct {
	kind      algorithm.Kind
	capacity  int64
	rate      int64 // fractions of a token for a microsecond
	window    int64
	overdraft int64
}

func (s shape) limits() algorithm.Limits {
	return algorithm.Limits{Kind: s.kind, Capacity: float64(s.capacity), Rate: float64(s.rate) / whole, Window: s.window}
}

// refilled is a token bucket's level so much later. The first call of a world may come at any time since 1970, for which a refill is more than
// 64 bits hold.
func (s shape) refilled(level, passed int64) int64 {
	full := s.capacity * whole
	if s.rate > 0 && passed > (full-level)/s.rate {
		return full
	}
	return level + s.rate*passed
}

// step is what a call does with one bucket.
type step struct {
	bucket int
	op     ratelimit.Op
	cost   uint64
	shadow bool
	undoes answer // of the Take that is given back
}

// answer is what the model says of one bucket.
type answer struct {
	admitted  bool
	left      int64 // in fractions
	wait      int64
	reset     int64
	before    int64 // in fractions
	at        int64
	uncharged uint64
}

// matches reports whether a store said the same.
func (a answer) matches(s step, r ratelimit.Result) bool {
	us := func(n int64) int64 { return n * 1000 }
	same := r.Err == nil && (r.Outcome == ratelimit.Admitted) == a.admitted && r.Remaining == float64(a.left)/whole &&
		int64(r.Wait) == us(a.wait) && int64(r.Reset) == us(a.reset) && r.Uncharged == a.uncharged && !r.Tentative
	if s.op == ratelimit.Take && a.admitted && a.before != noBefore {
		same = same && r.Before == float64(a.before)/whole
	}
	return same
}

// noBefore marks the answers of logs, of which Before says nothing.
const noBefore = -1 << 62

// world is all buckets of the model.
type world struct {
	now    int64
	shapes []shape
	states []state
}

type state struct {
	level   int64
	entries []int64 // one for each unit, oldest first
}

func newWorld(shapes []shape) *world {
	w := &world{shapes: shapes}
	for _, s := range shapes {
		w.states = append(w.states, state{level: s.capacity * whole})
	}
	return w
}

func (w *world) clone() *world {
	c := &world{now: w.now, shapes: w.shapes, states: slices.Clone(w.states)}
	for i := range c.states {
		c.states[i].entries = slices.Clone(c.states[i].entries)
	}
	return c
}

// pass lets time go by.
func (w *world) pass(now int64) {
	for i, s := range w.shapes {
		st := &w.states[i]
		st.level = s.refilled(st.level, now-w.now)
		st.entries = slices.DeleteFunc(st.entries, func(at int64) bool { return now-at >= s.window })
	}
	w.now = now
}

// call carries out the steps, all on different buckets, at now.
func (w *world) call(now int64, steps []step) []answer {
	w.pass(now)
	admitted := true
	for _, s := range steps {
		if takes(s.op) && !s.shadow && !w.fits(s.bucket, s.cost) {
			admitted = false
		}
	}
	answers := make([]answer, len(steps))
	for i, s := range steps {
		answers[i] = w.step(s, admitted)
	}
	return answers
}

func takes(op ratelimit.Op) bool { return op == ratelimit.Take || op == ratelimit.Peek }

func (w *world) step(s step, admitted bool) answer {
	a := answer{admitted: true, before: noBefore, at: w.now}
	if w.shapes[s.bucket].kind == algorithm.TokenBucket {
		a.before = w.states[s.bucket].level
	}
	switch s.op {
	case ratelimit.Take, ratelimit.Peek:
		if a.admitted = w.fits(s.bucket, s.cost); !a.admitted {
			a.wait = w.wait(s.bucket, s.cost)
		} else if admitted && s.op == ratelimit.Take {
			w.charge(s.bucket, s.cost)
		}
	case ratelimit.Force:
		charged := min(s.cost, w.room(s.bucket))
		w.charge(s.bucket, charged)
		a.uncharged = s.cost - charged
	case ratelimit.Refund:
		w.refund(s.bucket, s.cost)
	case ratelimit.Undo:
		w.undo(s)
	case ratelimit.Reset:
		w.forget(s.bucket)
	case ratelimit.Put:
		w.forget(s.bucket)
		charged := min(s.cost, uint64(w.shapes[s.bucket].capacity))
		w.charge(s.bucket, charged)
		a.uncharged = s.cost - charged
	}
	a.left, a.reset = w.left(s.bucket), w.reset(s.bucket)
	return a
}

// forget makes a bucket full.
func (w *world) forget(i int) { w.states[i] = newWorld(w.shapes[i : i+1]).states[0] }

func (w *world) left(i int) int64 {
	if s := w.shapes[i]; s.kind == algorithm.SlidingLog {
		return (s.capacity - int64(len(w.states[i].entries))) * whole
	}
	return w.states[i].level
}

func (w *world) fits(i int, cost uint64) bool { return w.left(i) >= int64(cost)*whole }

func (w *world) reset(i int) int64 {
	if e := w.states[i].entries; len(e) > 0 {
		return e[0] + w.shapes[i].window - w.now
	}
	return 0
}

func (w *world) wait(i int, cost uint64) int64 {
	s := w.shapes[i]
	if s.kind == algorithm.SlidingLog {
		e := w.states[i].entries
		return e[len(e)+int(cost)-int(s.capacity)-1] + s.window - w.now
	}
	missing := int64(cost)*whole - w.states[i].level
	return (missing + s.rate - 1) / s.rate
}

func (w *world) charge(i int, cost uint64) {
	if w.shapes[i].kind == algorithm.TokenBucket {
		w.states[i].level -= int64(cost) * whole
		return
	}
	for range cost {
		w.states[i].entries = append(w.states[i].entries, w.now)
	}
}

// room is the most that Force charges, in whole tokens.
func (w *world) room(i int) uint64 {
	room := w.left(i)
	if w.shapes[i].kind == algorithm.TokenBucket {
		room += w.shapes[i].overdraft * whole
	}
	return uint64(max(0, room/whole))
}

func (w *world) refund(i int, cost uint64) {
	s, st := w.shapes[i], &w.states[i]
	st.level = min(s.capacity*whole, st.level+int64(cost)*whole)
	st.entries = st.entries[:len(st.entries)-min(len(st.entries), int(cost))]
}

func (w *world) undo(u step) {
	s, st := w.shapes[u.bucket], &w.states[u.bucket]
	if s.kind == algorithm.TokenBucket {
		cost := int64(u.cost) * whole
		spilled := u.undoes.before + s.rate*(w.now-u.undoes.at) - s.capacity*whole
		st.level = min(s.capacity*whole, st.level+cost-min(max(spilled, 0), cost))
		return
	}
	removed := uint64(0)
	st.entries = slices.DeleteFunc(st.entries, func(at int64) bool {
		if at != u.undoes.at || removed == u.cost {
			return false
		}
		removed++
		return true
	})
}
