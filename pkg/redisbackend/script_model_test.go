package redisbackend

import (
	"math"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// modelBucket is what a key should hold, in terms of pkg/algorithm. The zero value is a key that is not there.
type modelBucket struct {
	tokens algorithm.Tokens
	log    algorithm.Log
	limits algorithm.Limits // those of the last write; zero: not there
	mark   algorithm.Mark
	life   float64 // what the key was told to live at most, in ms
	wrote  bool    // the last call wrote
}

func (m *modelBucket) exists() bool { return m.limits.Kind != 0 }

func (m *modelBucket) isLog() bool { return m.limits.Kind == algorithm.SlidingLog }

// model is what a server should hold after calls at the times given.
type model map[string]*modelBucket

func (w model) bucket(b *ratelimit.Bucket) *modelBucket {
	m := w[b.Key.String()]
	if m == nil {
		m = &modelBucket{}
		w[b.Key.String()] = m
	}
	return m
}

// call carries out a call at time and returns what Acquire should. If open, what is taken may yet be undone.
func (w model) call(buckets []ratelimit.Bucket, open bool, time int64) []ratelimit.Result {
	denied := false
	seen := make([]modelBucket, len(buckets))
	for i := range buckets {
		b := &buckets[i]
		seen[i] = w.bucket(b).under(b.Limits, time)
		if b.Op <= ratelimit.Peek && !b.Shadow && !seen[i].fits(b, time) {
			denied = true
		}
	}
	results := make([]ratelimit.Result, len(buckets))
	for i := range buckets {
		b, r := &buckets[i], &results[i]
		*r = w.bucket(b).step(seen[i], b, denied, open, time)
		if b.Shadow && (b.Op == ratelimit.Peek || b.Op == ratelimit.Take && (denied || r.Outcome == ratelimit.Denied)) {
			r.At = 0
		}
	}
	return results
}

// under is the bucket under the limits in force; wrote says whether it has become one of another algorithm.
func (m *modelBucket) under(l algorithm.Limits, time int64) modelBucket {
	s := *m
	s.wrote = false
	old := m.limits
	switch {
	case !m.exists():
		s.tokens, s.log = algorithm.NewTokens(l, time), algorithm.NewLog(nil)
	case old.Kind == l.Kind:
		s.log = algorithm.NewLog(nil)
		if m.isLog() {
			s.log = m.log
			s.log.Grow(make([]algorithm.Run, m.log.Runs()+1))
		}
	case m.isLog():
		s.tokens, s.wrote = m.log.TokensFor(l, old, time), true
	default:
		if m.tokens.Offset > 0 && old.Capacity < 1<<40 {
			old.Rate = 0 // not kept then
		}
		s.log, s.wrote = algorithm.NewLog(make([]algorithm.Run, 2)), true
		s.log.Clock = m.tokens.At(time)
		s.log.Add(m.tokens.EntriesFor(l, old, time), time)
	}
	s.limits.Kind = l.Kind
	return s
}

func (m *modelBucket) now(time int64) int64 {
	if m.isLog() {
		return m.log.Now(time)
	}
	return m.tokens.Now(time)
}

func (m *modelBucket) fits(b *ratelimit.Bucket, time int64) bool {
	if b.Limits.Kind == algorithm.SlidingLog {
		return m.log.Remaining(b.Limits, time) >= b.Cost
	}
	return m.tokens.Remaining(b.Limits, time) >= float64(b.Cost)
}

// step makes m of s, which it was found to be, and tells.
func (m *modelBucket) step(s modelBucket, b *ratelimit.Bucket, denied, open bool, time int64) ratelimit.Result {
	existed := m.exists()
	r := ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore}
	if b.Limits.Kind == algorithm.SlidingLog {
		s.stepLog(b, denied, existed, time, &r)
	} else {
		s.stepTokens(b, denied, existed, time, &r)
	}
	now := s.now(time)
	if b.Op == ratelimit.Take && r.Outcome == ratelimit.Admitted && !denied && open {
		s.mark = algorithm.NewMark(now)
	}
	if left := duration(s.mark.Left(now)); r.Outcome == ratelimit.Denied && left > 0 {
		r.Wait, r.Tentative = min(r.Wait, left), true
	}
	need := s.need(b.Limits, time)
	switch {
	case b.Op == ratelimit.Reset:
		s = modelBucket{wrote: true}
	case s.wrote:
		s.limits, s.life = b.Limits, need
	case !existed:
		s = modelBucket{}
	default:
		s.limits = m.limits
		s.life = max(s.life, need)
	}
	*m = s
	return r
}

func (m *modelBucket) stepTokens(b *ratelimit.Bucket, denied, existed bool, time int64, r *ratelimit.Result) {
	l := b.Limits
	have := m.tokens.Remaining(l, time)
	r.At = m.tokens.Now(time)
	before := m.tokens
	switch b.Op {
	case ratelimit.Take, ratelimit.Peek:
		r.Before, r.Remaining = have, have
		switch {
		case !m.fits(b, time):
			r.Outcome, r.Wait = ratelimit.Denied, duration(m.tokens.Wait(l, b.Cost, time))
			m.tokens.Clock = m.tokens.Seen(time)
		case denied || b.Op == ratelimit.Peek:
			m.tokens.Clock = m.tokens.Seen(time)
		default:
			m.tokens, _ = m.tokens.Take(l, b.Cost, time)
			r.Remaining, m.wrote = m.tokens.Level, true
		}
	case ratelimit.Force:
		m.tokens, r.Uncharged = m.tokens.Force(l, b.Cost, b.Overdraft, time)
		r.Remaining = m.tokens.Remaining(l, time)
		m.wrote = m.wrote || r.Uncharged < b.Cost
	case ratelimit.Undo:
		m.tokens = m.tokens.Undo(l, b.Cost, b.Before, b.At, time)
		r.Remaining, m.wrote = m.tokens.Level, existed
	case ratelimit.Refund:
		m.tokens = m.tokens.Refund(l, b.Cost, time)
		r.Remaining, m.wrote = m.tokens.Level, existed
	case ratelimit.Put:
		full := algorithm.Tokens{Level: l.Capacity, Clock: m.tokens.At(time)}
		m.tokens, r.Uncharged = full.Force(l, b.Cost, 0, time)
		r.Remaining, m.wrote = m.tokens.Level, true
	default:
		r.Remaining = l.Capacity
	}
	m.wrote = m.wrote || existed && m.tokens != before
}

func (m *modelBucket) stepLog(b *ratelimit.Bucket, denied, existed bool, time int64, r *ratelimit.Result) {
	l, g := b.Limits, &m.log
	if g.Room() == 0 {
		g.Grow(make([]algorithm.Run, 1))
	}
	r.At = g.Now(time)
	clock := g.Clock
	switch b.Op {
	case ratelimit.Take, ratelimit.Peek:
		switch {
		case !m.fits(b, time):
			r.Outcome, r.Wait = ratelimit.Denied, duration(g.Wait(l, b.Cost, time))
			g.Clock = g.Seen(time)
		case denied || b.Op == ratelimit.Peek:
			g.Clock = g.Seen(time)
		default:
			m.wrote = g.Take(l, b.Cost, time)
		}
	case ratelimit.Force:
		r.Uncharged = g.Force(l, b.Cost, time)
		m.wrote = m.wrote || r.Uncharged < b.Cost
		g.Clock = g.Seen(time)
	case ratelimit.Undo:
		g.Undo(l, b.Cost, b.At, time)
		m.wrote = existed
	case ratelimit.Refund:
		g.Refund(l, b.Cost, time)
		m.wrote = existed
	case ratelimit.Put:
		empty := algorithm.NewLog(make([]algorithm.Run, 1))
		empty.Clock = g.At(time)
		*g = empty
		r.Uncharged = g.Force(l, b.Cost, time)
		m.wrote = true
	default:
		*g = algorithm.NewLog(nil)
	}
	r.Remaining, r.Reset = float64(g.Remaining(l, time)), duration(g.Reset(l, time))
	m.wrote = m.wrote || existed && g.Clock != clock
}

// mostLife is what a bucket that takes for ever to fill is told to live, in ms.
const mostLife = 1e14

// need is how long the key has to live, in ms.
func (m *modelBucket) need(l algorithm.Limits, time int64) float64 {
	if l.Kind == algorithm.SlidingLog {
		now := m.log.Now(time)
		rest := int64(0) // until the newest entry leaves: a take of all waits for it
		if m.log.Count(l, time) > 0 {
			full := l
			full.Capacity = float64(m.log.Count(l, time))
			rest = m.log.Wait(full, uint64(full.Capacity), time)
		}
		return math.Ceil(float64(rest+now-time) / 1000)
	}
	rest := m.tokens.FullIn(l, time)
	if rest > 1e17 {
		return mostLife
	}
	return math.Ceil(float64(rest+m.tokens.Now(time)-time) / 1000)
}
