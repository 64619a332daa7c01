package redisbackend

import (
	"context"
	"errors"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// undoTimeout is how long something may take to be given back once its caller has left.
const undoTimeout = time.Second

var (
	errClosing  = errors.New("the store is being closed")
	errManyUndo = errors.New("too much is being given back already")
)

// giveBack undoes what the parts that admitted have taken, since another one denied, and makes the results say so. The caller waits for it
// while it has time, so that its own next request finds what is due to it; then a goroutine does.
func (g *group) giveBack(ctx context.Context) {
	u := g.store.groups.Get().(*group)
	undo := u.changed[:0]
	for i := range g.parts {
		if !g.shadowed(i) { // those were only looked at
			undo = appendTaken(undo, g.buckets, g.results, g.parts[i].at)
		}
	}
	u.changed = undo
	if len(undo) == 0 {
		g.store.groups.Put(u)
		return
	}
	if cap(u.scratch) < len(undo) {
		u.scratch = make([]ratelimit.Result, len(undo))
	}
	now := time.Now()
	u.begin(undo, u.scratch[:len(undo)], now, max(0, g.patience-now.Sub(g.began)))
	u.undo = true
	g.store.client.options.OnUndo(undo)
	for i := range u.parts {
		u.send(ctx, i, undo)
	}
	if u.wait(ctx) == nil {
		u.end()
		return
	}
	g.store.finishLater(u)
}

// finishLater waits for a group whose caller has left. The keys of its buckets are the caller's, so that nothing looks at them any more.
func (s *Store) finishLater(u *group) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		u.giveUp(errClosing)
		u.end()
		return
	}
	s.late.Go(func() {
		u.timer.Reset(undoTimeout)
		u.finish(context.Background())
		u.end()
	})
}

// appendTaken appends an undo for each bucket of a part that was charged, and corrects its result.
func appendTaken(undo, buckets []ratelimit.Bucket, results []ratelimit.Result, at []int) []ratelimit.Bucket {
	for _, i := range at {
		b, r := &buckets[i], &results[i]
		if r.Err != nil || !b.Shadow && takes(b.Op) && r.Outcome == ratelimit.Denied {
			return undo // nothing was charged here
		}
	}
	for _, i := range at {
		b, r := &buckets[i], &results[i]
		if b.Op != ratelimit.Take || r.Outcome != ratelimit.Admitted {
			continue
		}
		back := *b
		back.Op, back.Before, back.At = ratelimit.Undo, r.Before, r.At
		undo = append(undo, back)
		untake(b, r)
		if b.Shadow {
			r.At = 0 // as one that was only looked at
		}
	}
	return undo
}

// untake makes the result of a Take say what the bucket has without it.
func untake(b *ratelimit.Bucket, r *ratelimit.Result) {
	if b.Limits.Kind == algorithm.TokenBucket {
		r.Remaining = r.Before
		return
	}
	r.Remaining += float64(b.Cost)
	if r.Remaining >= b.Limits.Capacity {
		r.Reset = 0 // it was empty
	}
}
