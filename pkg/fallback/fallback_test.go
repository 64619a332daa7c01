package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

var errGone = errors.New("gone")

// broken is a store that cannot decide some of its buckets, and decides the others as if those were not there.
type broken struct {
	ratelimit.Store
	fails func(b *ratelimit.Bucket) bool
	delay time.Duration // of an undo

	mu  sync.Mutex
	ops []string // what reached the store
}

func (s *broken) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	results = append(results[:0], make([]ratelimit.Result, len(buckets))...)
	var healthy []ratelimit.Bucket
	var at []int
	for i := range buckets {
		if s.fails(&buckets[i]) {
			results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: errGone}
			continue
		}
		if buckets[i].Op == ratelimit.Undo {
			time.Sleep(s.delay)
		}
		healthy, at = append(healthy, buckets[i]), append(at, i)
		s.ops = append(s.ops, fmt.Sprintf("%d %s", buckets[i].Op, buckets[i].Key))
	}
	for j, r := range s.Store.Acquire(ctx, healthy, nil) {
		results[at[j]] = r
	}
	return results
}

// left is what a bucket holds, without going through what breaks.
func (s *broken) left(b ratelimit.Bucket) float64 {
	b.Op, b.Cost, b.Shadow = ratelimit.Peek, 1, false
	return s.Store.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)[0].Remaining
}

var (
	tokens = storetest.TB(3, 1e-6)
	log    = storetest.SL(3, 1000*time.Hour)
)

func take(name string, l algorithm.Limits, mode policy.FailureMode) ratelimit.Bucket {
	return ratelimit.Bucket{Key: policy.NewKey(policy.Part{}, name), Limits: l, Op: ratelimit.Take, Cost: 1, OnFailure: mode}
}

func with(b ratelimit.Bucket, op ratelimit.Op) ratelimit.Bucket { b.Op = op; return b }
func shadow(b ratelimit.Bucket) ratelimit.Bucket                { b.Shadow = true; return b }

// failing makes a store whose buckets with these names fail.
func failing(names ...string) *broken {
	var keys []string
	for _, n := range names {
		keys = append(keys, policy.NewKey(policy.Part{}, n).String())
	}
	return &broken{
		Store: memorybackend.New(memorybackend.Options{MaxBuckets: 1000}),
		fails: func(b *ratelimit.Bucket) bool { return slices.Contains(keys, b.Key.String()) },
	}
}

func TestAnswers(t *testing.T) {
	dead := func(m policy.FailureMode) ratelimit.Bucket { return take("dead", tokens, m) }
	good, empty := take("good", tokens, policy.Closed), take("empty", tokens, policy.Closed)
	goodLog := take("good log", log, policy.Open)
	tests := []struct {
		name    string
		buckets []ratelimit.Bucket
		want    []string // sources, with a - where it is a denial
		told    int      // failures
		undone  int
	}{
		{"all is well", []ratelimit.Bucket{good, goodLog}, []string{"store", "store"}, 0, 0},
		{"open admits", []ratelimit.Bucket{dead(policy.Open)}, []string{"open"}, 1, 0},
		{"local admits", []ratelimit.Bucket{dead(policy.Local)}, []string{"open"}, 1, 0},
		{"closed denies", []ratelimit.Bucket{dead(policy.Closed)}, []string{"closed-"}, 1, 0},
		{"no mode admits", []ratelimit.Bucket{dead(0)}, []string{"open"}, 1, 0},
		{"a closed peek denies", []ratelimit.Bucket{with(dead(policy.Closed), ratelimit.Peek)}, []string{"closed-"}, 1, 0},
		{"a closed report is let through", []ratelimit.Bucket{with(dead(policy.Closed), ratelimit.Force)}, []string{"open"}, 1, 0},
		{"a closed refund is let through", []ratelimit.Bucket{with(dead(policy.Closed), ratelimit.Refund)}, []string{"open"}, 1, 0},
		{"what admitted stands", []ratelimit.Bucket{good, dead(policy.Open), goodLog}, []string{"store", "open", "store"}, 1, 0},
		{"closed: what was taken is given back", []ratelimit.Bucket{good, dead(policy.Closed), goodLog}, []string{"store", "closed-", "store"}, 1, 2},
		{"a peek took nothing", []ratelimit.Bucket{with(good, ratelimit.Peek), dead(policy.Closed)}, []string{"store", "closed-"}, 1, 0},
		{"a report stands", []ratelimit.Bucket{with(good, ratelimit.Force), dead(policy.Closed)}, []string{"store", "closed-"}, 1, 0},
		{"denied by the store: nothing was taken", []ratelimit.Bucket{good, dead(policy.Closed), empty}, []string{"store", "closed-", "store-"}, 1, 0},
		{"denied by the store, though open", []ratelimit.Bucket{dead(policy.Open), empty}, []string{"open", "store-"}, 1, 0},
		{"a shadow's failure changes nothing", []ratelimit.Bucket{good, shadow(dead(policy.Closed))}, []string{"store", "closed-"}, 1, 0},
		{"a shadow's denial changes nothing", []ratelimit.Bucket{good, shadow(empty), dead(policy.Closed)}, []string{"store", "store-", "closed-"}, 1, 1},
		{"a shadow is given back, too", []ratelimit.Bucket{good, shadow(goodLog), dead(policy.Closed)}, []string{"store", "store", "closed-"}, 1, 2},
		{"a shadow of an admitted request stands", []ratelimit.Bucket{good, shadow(goodLog), dead(policy.Open)}, []string{"store", "store", "open"}, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := failing("dead")
			three := with(empty, ratelimit.Force)
			three.Cost = 3
			s.Store.Acquire(t.Context(), []ratelimit.Bucket{three}, nil)
			told, undone := 0, 0
			f := fallback.New(fallback.Options{
				Store: s,
				OnFailure: func(b *ratelimit.Bucket, err error) {
					require.ErrorIs(t, err, errGone)
					require.Equal(t, "rl:{id:dead}:dead", b.Key.String())
					told++
				},
				OnUndo: func(b *ratelimit.Bucket, err error) {
					require.NoError(t, err)
					require.Equal(t, ratelimit.Undo, b.Op)
					undone++
				},
			})
			results := f.Acquire(t.Context(), tt.buckets, nil)
			f.Close()
			var got []string
			for i, r := range results {
				require.NoError(t, r.Err)
				got = append(got, r.Source.String()+map[ratelimit.Outcome]string{0: "!", ratelimit.Denied: "-"}[r.Outcome])
				if r.Source == ratelimit.FromStore && tt.buckets[i].Op != ratelimit.Force {
					require.InDelta(t, s.left(tt.buckets[i]), r.Remaining, 1e-6, "bucket %d: told what is left", i)
				}
			}
			require.Equal(t, tt.want, got)
			require.Equal(t, tt.told, told)
			require.Equal(t, tt.undone, undone)
		})
	}
}

// TestNoErrorLeaves: whatever fails, there is a decision; and what is charged is what was admitted.
func TestNoErrorLeaves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := failing()
		s.fails = func(b *ratelimit.Bucket) bool { return rapid.IntRange(0, 2).Draw(rt, "fails") == 0 }
		lost := map[string]float64{} // by undos that failed
		onUndo := func(b *ratelimit.Bucket, err error) {
			if err != nil {
				lost[b.Key.String()]++
			}
		}
		var buckets []ratelimit.Bucket
		left := map[string]float64{}
		for i := range rapid.IntRange(1, 5).Draw(rt, "buckets") {
			l := rapid.SampledFrom([]algorithm.Limits{tokens, log}).Draw(rt, "limits")
			b := take(fmt.Sprint(i), l, policy.FailureMode(rapid.IntRange(0, 3).Draw(rt, "mode")))
			b.Op = rapid.SampledFrom([]ratelimit.Op{ratelimit.Take, ratelimit.Take, ratelimit.Peek}).Draw(rt, "op")
			buckets, left[b.Key.String()] = append(buckets, b), l.Capacity
		}
		for range rapid.IntRange(1, 10).Draw(rt, "calls") {
			clear(lost)
			f := fallback.New(fallback.Options{Store: s, OnUndo: onUndo})
			results := f.Acquire(t.Context(), buckets, nil)
			f.Close() // all is given back
			allowed := true
			for i, r := range results {
				require.NoError(rt, r.Err)
				require.Contains(rt, []ratelimit.Outcome{ratelimit.Admitted, ratelimit.Denied}, r.Outcome)
				allowed = allowed && r.Outcome == ratelimit.Admitted
				require.Equal(rt, r.Source == ratelimit.FromClosed, r.Outcome == ratelimit.Denied && buckets[i].OnFailure == policy.Closed && r.Source != ratelimit.FromStore)
			}
			for i, r := range results {
				key := buckets[i].Key.String()
				if allowed && r.Source == ratelimit.FromStore && buckets[i].Op == ratelimit.Take {
					left[key]--
				}
				left[key] -= lost[key]
				require.InDelta(rt, left[key], s.left(buckets[i]), 1e-6)
			}
		}
	})
}

// TestUndoesInTheBackground: nobody waits for it but Close, and it needs nothing of the caller's.
func TestUndoesInTheBackground(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := failing("dead")
		s.delay = 400 * time.Millisecond
		f := fallback.New(fallback.Options{Store: s})
		began := time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		good := take("good", tokens, policy.Open)
		f.Acquire(ctx, []ratelimit.Bucket{good, take("dead", tokens, policy.Closed)}, nil)
		cancel()
		clear(good.Key.Bytes())
		require.Zero(t, time.Since(began))
		f.Close()
		require.Equal(t, s.delay, time.Since(began))
		require.Equal(t, []string{"1 rl:{id:good}:good", "3 rl:{id:good}:good"}, s.ops)
		require.Equal(t, 3.0, s.left(take("good", tokens, policy.Open)))
	})
}

func TestUndoesThatFailAreTold(t *testing.T) {
	call := []ratelimit.Bucket{take("good", storetest.TB(5000, 1e-6), policy.Open), take("dead", tokens, policy.Closed)}
	t.Run("the store cannot", func(t *testing.T) {
		s := failing("dead")
		dead := s.fails
		s.fails = func(b *ratelimit.Bucket) bool { return b.Op == ratelimit.Undo || dead(b) }
		f, told := telling(s)
		f.Acquire(t.Context(), call, nil)
		f.Close()
		require.Equal(t, []error{errGone}, *told)
	})
	t.Run("after Close", func(t *testing.T) {
		f, told := telling(failing("dead"))
		f.Close()
		results := f.Acquire(t.Context(), call, nil)
		require.Equal(t, ratelimit.FromClosed, results[1].Source)
		require.Equal(t, []error{fallback.ErrClosed}, *told)
	})
	t.Run("too many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := &sticky{Store: failing("dead")}
			f, told := telling(s)
			for range 1030 {
				f.Acquire(t.Context(), call, nil)
			}
			f.Close() // the others end by their own deadline
			require.Len(t, *told, 1030)
			require.Equal(t, slices.Repeat([]error{fallback.ErrBusy}, 6), (*told)[:6])
			for _, err := range (*told)[6:] {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	})
}

// telling makes a Store that notes how undos end.
func telling(s ratelimit.Store) (*fallback.Store, *[]error) {
	var mu sync.Mutex
	told := new([]error)
	noted := func(_ *ratelimit.Bucket, err error) {
		mu.Lock()
		defer mu.Unlock()
		*told = append(*told, err)
	}
	noTrouble := func(error) fallback.Fault { return fallback.Fault{} }
	return fallback.New(fallback.Options{Store: s, OnUndo: noted, Classify: noTrouble}), told
}

// sticky is a store that never answers an undo.
type sticky struct{ ratelimit.Store }

func (s *sticky) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if buckets[0].Op == ratelimit.Undo {
		<-ctx.Done()
	}
	return s.Store.Acquire(ctx, buckets, results)
}

// TestCostsNothing: a call that the store decides is passed through as it is.
func TestCostsNothing(t *testing.T) {
	f := fallback.New(fallback.Options{Store: memorybackend.New(memorybackend.Options{MaxBuckets: 1000})})
	buckets := []ratelimit.Bucket{take("a", tokens, policy.Closed), take("b", log, policy.Open)}
	results := make([]ratelimit.Result, 0, 2)
	require.Zero(t, testing.AllocsPerRun(100, func() { results = f.Acquire(context.Background(), buckets, results) }))
}

// onlooker is a store that charges no shadow.
type onlooker struct{ ratelimit.Store }

func (s onlooker) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	buckets = slices.Clone(buckets)
	for i := range buckets {
		if b := &buckets[i]; b.Shadow && b.Op == ratelimit.Take {
			b.Op = ratelimit.Peek
		}
	}
	return s.Store.Acquire(ctx, buckets, results)
}

// TestShadowsThatWereOnlyLookedAt: what was not charged is not given back.
func TestShadowsThatWereOnlyLookedAt(t *testing.T) {
	s, trial := failing("dead"), take("trial", tokens, policy.Open)
	ask(s.Store, trial)
	f, told := telling(onlooker{s})
	ask(f, take("good", tokens, policy.Open), shadow(trial), take("dead", tokens, policy.Closed))
	f.Close()
	require.Equal(t, []error{nil}, *told, "one was given back")
	require.InDelta(t, 2, s.left(trial), 0.01)
}

// TestShadowsThatAShareDenies: a shadow in the store is given back if what this process decides denies the request.
func TestShadowsThatAShareDenies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, trial := failing("dead"), take("trial", daily, policy.Open)
		f := fallback.New(fallback.Options{Store: s, Local: newHub(), Shard: func(key []byte) string { return string(key) }})
		defer f.Close()
		for i := range 10 {
			admitted := ask(f, shadow(trial), take("dead", tokens, policy.Local))[1].Outcome == ratelimit.Admitted
			require.Equal(t, i < 3, admitted)
			synctest.Wait()
			require.InDelta(t, 100-min(i+1, 3), s.left(trial), 0.01)
		}
	})
}
