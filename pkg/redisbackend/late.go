package redisbackend

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// mostLateUndos bounds what is given back at once of late charges.
const mostLateUndos = 1024

// late is a call whose caller has left after it was sent: what it was about, for whoever can still use the reply.
type late struct {
	store   *Store
	buckets []ratelimit.Bucket // of the part, with keys of their own and the operations that were sent
	at      []int              // all of them
	results []ratelimit.Result // once arrived
	began   time.Time
	state   atomic.Int32
}

// What has become of a late call.
const (
	awaited   = iota // and nobody knows what for
	arrived          // its results are there
	regretted        // its request was denied: what it took is to be given back
)

// lateCall prepares to leave the call of a part.
func (g *group) lateCall(p *part) *late {
	if g.undo {
		return nil // nobody learns from it
	}
	l := &late{store: g.store, began: g.began, buckets: make([]ratelimit.Bucket, len(p.at)), at: make([]int, len(p.at))}
	for j, i := range p.at {
		l.buckets[j], l.at[j] = p.sent[i], j
		l.buckets[j].Key = p.sent[i].Key.Clone()
	}
	return l
}

// arrive takes in the reply of a call that was left. The worker calls it.
func (l *late) arrive(c *call) {
	results := make([]ratelimit.Result, len(l.buckets))
	if c.outcome != nil || l.store.codec.readReply(c.Val(), c.place, l.buckets, l.at, results) != nil {
		return
	}
	l.results = results
	l.store.client.options.OnLate(&Call{
		Node: c.node.address, Queued: l.began, Took: time.Since(l.began), Merged: c.place.turn > 1, Buckets: l.buckets, Results: results, At: l.at,
	})
	if !l.state.CompareAndSwap(awaited, arrived) {
		l.giveBack()
	}
}

// GiveBack has a call that was sent and not answered in time undone, if its reply comes and says that it was carried out: its request was
// denied meanwhile. Without it what such a call took stays taken. It does not wait, and may be called again.
func (e *Error) GiveBack() {
	if l := e.late; l != nil && !l.state.CompareAndSwap(awaited, regretted) && l.state.CompareAndSwap(arrived, regretted) {
		l.giveBack()
	}
}

func (l *late) giveBack() {
	if undo := appendTaken(nil, l.buckets, l.results, l.at); len(undo) > 0 {
		l.store.undoLater(undo)
	}
}

// undoLater gives back in the background.
func (s *Store) undoLater(undo []ratelimit.Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closing:
		s.lose(errClosing)
		return
	case s.lateUndos == mostLateUndos:
		s.lose(errManyUndo)
		return
	}
	s.lateUndos++
	s.late.Go(func() {
		u := s.groups.Get().(*group)
		u.begin(undo, make([]ratelimit.Result, len(undo)), time.Now(), undoTimeout)
		u.undo = true
		s.client.options.OnUndo(undo)
		for i := range u.parts {
			u.send(context.Background(), i, undo)
		}
		u.finish(context.Background())
		u.end()
		s.mu.Lock()
		s.lateUndos--
		s.mu.Unlock()
	})
}

// lose tells that something is not given back.
func (s *Store) lose(why error) {
	s.client.options.OnFailure(&Failure{Error: &Error{Reason: ReasonUnsent, err: why}, Undo: true})
}
