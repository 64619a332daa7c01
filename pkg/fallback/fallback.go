// Package fallback answers for a store that cannot: each bucket without a result is decided by its policy's failure mode, so that there
// is always a decision and never an error.
//
// A closed policy denies. An open one admits, and so does a local one as yet: its buckets have no share of the limit in this process,
// and the results say that they were let through (FromOpen), not that they were counted. When a closed policy denies a request, what
// its other buckets were charged is given back in the background.
//
// The deadline is the store's: it must return when the context of a call ends, and better before, as redisbackend.Options.Timeout has
// it. Nothing here waits for anything else.
package fallback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Options are what a Store is made of.
type Options struct {
	// Store decides as long as it can. Required.
	Store ratelimit.Store
	// OnFailure, if set, is told of each bucket that Store could not decide, and why, before Acquire returns. It must not keep the
	// bucket.
	OnFailure func(*ratelimit.Bucket, error)
	// OnUndo, if set, is told of each charge that was given back, or could not be: then error says why, and the charge is lost to the
	// client. It is called from another goroutine, and must not keep the bucket.
	OnUndo func(*ratelimit.Bucket, error)
}

// mostUndos is how many requests' charges are given back at once. A store that fails as slowly as it can, for 20,000 calls a
// second and 5 ms each, has 100 of them under way.
const mostUndos = 1024

// undoTimeout is how long giving back may take, if the store leaves it so long.
const undoTimeout = time.Second

// What Options.OnUndo is told if nothing was tried.
var (
	ErrBusy   = errors.New("too many charges are being given back already")
	ErrClosed = errors.New("closed")
)

// Store is a ratelimit.Store whose results carry no errors. It is safe for concurrent use.
type Store struct {
	options Options

	mu     sync.Mutex // guards what follows
	closed bool
	open   int
	undos  sync.WaitGroup
}

var _ ratelimit.Store = (*Store)(nil)

// New makes a Store.
func New(o Options) *Store {
	if o.OnFailure == nil {
		o.OnFailure = func(*ratelimit.Bucket, error) {}
	}
	if o.OnUndo == nil {
		o.OnUndo = func(*ratelimit.Bucket, error) {}
	}
	return &Store{options: o}
}

// Close waits for what is being given back, a second at most. After it nothing is given back any more.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.undos.Wait()
}

// Acquire implements ratelimit.Store. No result carries an error.
func (s *Store) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	results = s.options.Store.Acquire(ctx, buckets, results)
	for i := range results {
		if results[i].Err != nil {
			s.answer(buckets, results)
			break
		}
	}
	return results
}

// answer decides what the store could not.
func (s *Store) answer(buckets []ratelimit.Bucket, results []ratelimit.Result) {
	byStore, byMode := false, false // denied
	for i := range buckets {
		b, r := &buckets[i], &results[i]
		enforced := !b.Shadow && b.Op.Deniable()
		if r.Err == nil {
			byStore = byStore || enforced && r.Outcome == ratelimit.Denied
			continue
		}
		s.options.OnFailure(b, r.Err)
		*r = answerFor(b)
		byMode = byMode || enforced && r.Outcome == ratelimit.Denied
	}
	if byMode && !byStore { // else the store has charged nothing
		s.giveBack(buckets, results)
	}
}

// answerFor is what a bucket's failure mode says.
func answerFor(b *ratelimit.Bucket) ratelimit.Result {
	if b.OnFailure == policy.Closed && b.Op.Deniable() {
		return ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromClosed}
	}
	return ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromOpen}
}

// giveBack returns what the store has charged to the enforced buckets, since the request is denied, and makes their results say so.
func (s *Store) giveBack(buckets []ratelimit.Bucket, results []ratelimit.Result) {
	var undo []ratelimit.Bucket
	for i := range buckets {
		b, r := &buckets[i], &results[i]
		if b.Shadow || b.Op != ratelimit.Take || r.Outcome != ratelimit.Admitted || r.Source != ratelimit.FromStore {
			continue
		}
		back := *b
		back.Key, back.Op, back.Before, back.At = b.Key.Clone(), ratelimit.Undo, r.Before, r.At
		undo = append(undo, back)
		untake(b, r)
	}
	if len(undo) == 0 {
		return
	}
	if err := s.begin(undo); err != nil {
		s.tell(undo, err)
	}
}

// untake makes the result of a Take say what the bucket has without it.
func untake(b *ratelimit.Bucket, r *ratelimit.Result) {
	r.Remaining = min(r.Remaining+float64(b.Cost), b.Limits.Capacity)
	if b.Limits.Kind == algorithm.SlidingLog && r.Remaining == b.Limits.Capacity {
		r.Reset = 0 // it was empty
	}
}

// begin has the store give back in the background.
func (s *Store) begin(undo []ratelimit.Bucket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return ErrClosed
	case s.open == mostUndos:
		return ErrBusy
	}
	s.open++
	s.undos.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
		defer cancel()
		for i, r := range s.options.Store.Acquire(ctx, undo, nil) {
			s.options.OnUndo(&undo[i], r.Err)
		}
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	})
	return nil
}

func (s *Store) tell(undo []ratelimit.Bucket, err error) {
	for i := range undo {
		s.options.OnUndo(&undo[i], err)
	}
}
