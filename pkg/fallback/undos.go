package fallback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

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

// undos give back, in the background, what was charged for requests that were denied.
type undos struct {
	store ratelimit.Store
	tell  func(*ratelimit.Bucket, error)

	mu     sync.Mutex // guards what follows
	closed bool
	open   int
	all    sync.WaitGroup
}

func (u *undos) close() {
	u.mu.Lock()
	u.closed = true
	u.mu.Unlock()
	u.all.Wait()
}

// giveBack returns what the store has charged, to shadows too, since the request is denied, and makes the results say so.
func (u *undos) giveBack(buckets []ratelimit.Bucket, results []ratelimit.Result) {
	var undo []ratelimit.Bucket
	for i := range buckets {
		b, r := &buckets[i], &results[i]
		if b.Op != ratelimit.Take || r.Outcome != ratelimit.Admitted || r.Source != ratelimit.FromStore || b.Shadow && r.At == 0 {
			continue
		}
		back := *b
		back.Key, back.Op, back.Before, back.At = b.Key.Clone(), ratelimit.Undo, r.Before, r.At
		undo = append(undo, back)
		untake(b, r)
		if b.Shadow {
			r.At = 0 // as one that was only looked at
		}
	}
	if len(undo) == 0 {
		return
	}
	if err := u.begin(undo); err != nil {
		for i := range undo {
			u.tell(&undo[i], err)
		}
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
func (u *undos) begin(undo []ratelimit.Bucket) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case u.closed:
		return ErrClosed
	case u.open == mostUndos:
		return ErrBusy
	}
	u.open++
	u.all.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), undoTimeout)
		defer cancel()
		for i, r := range u.store.Acquire(ctx, undo, nil) {
			u.tell(&undo[i], r.Err)
		}
		u.mu.Lock()
		u.open--
		u.mu.Unlock()
	})
	return nil
}
