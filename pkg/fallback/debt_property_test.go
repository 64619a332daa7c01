package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// books are what calls of several buckets on shards that fail have spent by what they were told.
type books struct {
	instances []*fallback.Store
	store     *losing
	spent     map[int]uint64
}

// losing is a store with shards that fail, or carry out what they are asked and lose the answer.
type losing struct {
	*broken

	mu         sync.Mutex // guards what follows
	down, lose map[string]bool
	lost       map[string]uint64 // cost of takes by key, of which nobody knows
}

func newLosing() *losing {
	l := &losing{down: map[string]bool{}, lose: map[string]bool{}, lost: map[string]uint64{}}
	l.broken = &broken{
		Store: memorybackend.New(memorybackend.Options{MaxBuckets: 1000}),
		fails: func(b *ratelimit.Bucket) bool { return l.down[shardOfKey(b.Key.Bytes())] },
	}
	return l
}

// change gives each shard a new state.
func (l *losing) change(next func(shard string, down, lose bool) (bool, bool)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range modelShards {
		l.down[s], l.lose[s] = next(s, l.down[s], l.lose[s])
	}
}

// lostCall is the error of a call that was carried out, and what would give back what it took.
type lostCall struct{ undo []ratelimit.Bucket }

func (*lostCall) Error() string { return "lost" }

func (l *losing) Acquire(ctx context.Context, buckets []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]ratelimit.Result, len(buckets))
	parts := map[string][]int{} // those of shards which lose the answer are on their own
	for i := range buckets {
		shard := shardOfKey(buckets[i].Key.Bytes())
		if !l.lose[shard] || l.down[shard] {
			shard = ""
		}
		parts[shard] = append(parts[shard], i)
	}
	for _, shard := range append(modelShards, "") {
		at := parts[shard]
		if len(at) == 0 {
			continue
		}
		var part []ratelimit.Bucket
		for _, i := range at {
			part = append(part, buckets[i])
		}
		got := l.broken.Acquire(ctx, part, nil)
		for j, i := range at {
			results[i] = got[j]
		}
		if shard != "" {
			err := l.loseAnswers(part, got)
			for _, i := range at {
				results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: err}
			}
		}
	}
	return results
}

func (l *losing) loseAnswers(part []ratelimit.Bucket, results []ratelimit.Result) error {
	lost := &lostCall{}
	for i, r := range results {
		if r.Outcome == ratelimit.Denied && !part[i].Shadow {
			return lost
		}
	}
	for i, b := range part {
		if b.Op == ratelimit.Take {
			l.lost[b.Key.String()] += b.Cost
			b.Op, b.Before, b.At = ratelimit.Undo, results[i].Before, results[i].At
			lost.undo = append(lost.undo, b)
		}
	}
	return lost
}

// regret gives back what a lost call took.
func (l *losing) regret(err error) {
	var lost *lostCall
	if !errors.As(err, &lost) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range lost.undo {
		l.lost[b.Key.String()] -= b.Cost
		l.Store.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)
	}
	lost.undo = nil
}

func newBooks(count int) *books {
	b := &books{store: newLosing(), spent: map[int]uint64{}}
	for i := range count {
		b.instances = append(b.instances, fallback.New(fallback.Options{
			Store: b.store, Shard: shardOfKey, Regret: b.store.regret, Local: memorybackend.New(memorybackend.Options{MaxBuckets: 1000}), Timeout: 5 * time.Millisecond,
			Instances: func() fallback.Instances { return fallback.Instances{Count: count, Index: i} },
			Classify: func(err error) fallback.Fault {
				return fallback.Fault{Reason: "test", Trouble: true, MayHaveRun: !errors.Is(err, errGone)}
			},
		}))
	}
	return b
}

// bookBucket is one of nine: of three shards, two kinds and three modes.
func bookBucket(n int) ratelimit.Bucket {
	l := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 20, Rate: algorithm.RatePer(1e6*time.Hour, 1)}
	if n%2 == 1 {
		l = algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 20, Window: int64(1e6 * time.Hour / time.Microsecond)}
	}
	mode := []policy.FailureMode{policy.Local, policy.Local, policy.Local, policy.Closed, policy.Open}[n%5]
	return take(fmt.Sprintf("%s-%d", modelShards[n%3], n), l, mode)
}

func (b *books) call(rt *rapid.T) {
	numbers := rapid.SliceOfNDistinct(rapid.IntRange(0, 8), 1, 4, rapid.ID[int]).Draw(rt, "buckets")
	var buckets []ratelimit.Bucket
	for _, n := range numbers {
		one := bookBucket(n)
		one.Op = rapid.SampledFrom([]ratelimit.Op{ratelimit.Take, ratelimit.Take, ratelimit.Take, ratelimit.Peek}).Draw(rt, "op")
		one.Cost = rapid.Uint64Range(1, 4).Draw(rt, "cost")
		buckets = append(buckets, one)
	}
	by := b.instances[rapid.IntRange(0, len(b.instances)-1).Draw(rt, "instance")]
	results := ask(by, buckets...)
	for _, r := range results {
		if r.Outcome == ratelimit.Denied {
			return
		}
	}
	for i, n := range numbers {
		if buckets[i].Op == ratelimit.Take && results[i].Source != ratelimit.FromOpen {
			b.spent[n] += buckets[i].Cost
		}
	}
}

// settle has all shards work again for long enough to be charged.
func (b *books) settle(rt *rapid.T) {
	b.store.change(func(string, bool, bool) (bool, bool) { return false, false })
	time.Sleep(10 * time.Second)
	for _, s := range b.instances {
		d := s.Debts()
		require.Zero(rt, d.Buckets)
		require.Zero(rt, d.Dropped)
	}
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	for n := range 9 {
		one := bookBucket(n)
		spent := b.spent[n] + b.store.lost[one.Key.String()]
		require.InDelta(rt, max(0, one.Limits.Capacity-float64(spent)), b.store.left(one), 1e-6, "bucket %d", n)
	}
}

// TestTheStoreLearnsOfAllThatWasAdmitted: once, of each bucket of each request, whatever failed meanwhile, and of nothing else but takes whose
// answers were lost and whose requests were admitted.
func TestTheStoreLearnsOfAllThatWasAdmitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			b := newBooks(rapid.IntRange(1, 3).Draw(rt, "instances"))
			for _, s := range b.instances {
				defer s.Close()
			}
			for range rapid.IntRange(1, 80).Draw(rt, "steps") {
				b.store.change(func(shard string, down, lose bool) (bool, bool) {
					n := rapid.IntRange(0, 19).Draw(rt, "change of "+shard)
					return down != (n < 2), lose != (n == 2)
				})
				time.Sleep(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 1, 15, 30, 600}).Draw(rt, "pause")) * time.Millisecond)
				b.call(rt)
				synctest.Wait()
			}
			b.settle(rt)
		})
	})
}
