package rejectcache_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func TestDeniesWithoutAskingForASecond(t *testing.T) {
	bubble(t, func(f *fixture, b ratelimit.Bucket) {
		f.drain(b)
		calls := f.store.calls
		for range 10 {
			r := f.expect(b, ratelimit.FromCache, ratelimit.Denied)
			require.Positive(f, r.Wait)
			time.Sleep(99 * time.Millisecond)
		}
		require.Equal(f, calls, f.store.calls)
		time.Sleep(10 * time.Millisecond)
		f.expect(b, ratelimit.FromStore, ratelimit.Denied)
		f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		require.Equal(f, rejectcache.Stats{Denials: 11, Learnt: 2}, f.cache.Stats())
	})
}

func TestToldAsTheStoreWould(t *testing.T) {
	bubble(t, func(f *fixture, b ratelimit.Bucket) {
		f.drain(b)
		time.Sleep(300 * time.Millisecond)
		got := f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		want := f.store.Store.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)[0]
		require.Equal(f, want.Wait, got.Wait)
		require.Equal(f, want.Reset, got.Reset)
		require.InDelta(f, want.Remaining, got.Remaining, 1e-9)
		require.NoError(f, got.Err)
	})
}

func TestDeniesByTheTimeOfSendingAndPromisesByThatOfReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, rejectcache.Options{})
		f.store.there, f.store.back = 40*time.Millisecond, 60*time.Millisecond
		b := take("a", storetest.TB(1, 120)) // half a second for one
		f.drain(b)                           // taken at 40 ms, denied at 140 ms with 0.2 left
		r := f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		require.Equal(t, 400*time.Millisecond, r.Wait, "as if decided at the time of receipt, 200 ms")
		require.InDelta(t, 0.2, r.Remaining, 1e-9)
		time.Sleep(299 * time.Millisecond) // 499 ms: as if decided at the time of sending, there is one at 500 ms
		r = f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		require.Equal(t, 101*time.Millisecond, r.Wait)
		time.Sleep(time.Millisecond)
		f.expect(b, ratelimit.FromStore, ratelimit.Admitted) // sent at 500 ms, it arrives when there is one
	})
}

func TestForgets(t *testing.T) {
	ops := map[string]ratelimit.Op{"refund": ratelimit.Refund, "undo": ratelimit.Undo, "reset": ratelimit.Reset, "put": ratelimit.Put, "force": ratelimit.Force}
	for name, op := range ops {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture, b ratelimit.Bucket) {
				f.drain(b)
				f.expect(b, ratelimit.FromCache, ratelimit.Denied)
				back := b
				back.Op = op
				f.one(back)
				require.Equal(f, ratelimit.FromStore, f.one(b).Source)
			})
		})
	}
	t.Run("a take that passes", func(t *testing.T) {
		bubble(t, func(f *fixture, b ratelimit.Bucket) {
			f.one(with("a", b.Limits, ratelimit.Take, 2))
			more := with("a", b.Limits, ratelimit.Take, 3)
			f.expect(more, ratelimit.FromStore, ratelimit.Denied)
			f.expect(more, ratelimit.FromCache, ratelimit.Denied)
			f.expect(b, ratelimit.FromStore, ratelimit.Admitted)
			f.expect(more, ratelimit.FromStore, ratelimit.Denied) // there is more to wait for
		})
	})
	t.Run("other limits", func(t *testing.T) {
		bubble(t, func(f *fixture, b ratelimit.Bucket) {
			f.drain(b)
			reloaded := b
			reloaded.Limits.Capacity++
			require.Equal(f, ratelimit.FromStore, f.one(reloaded).Source)
			f.expect(b, ratelimit.FromStore, ratelimit.Denied)
		})
	})
	t.Run("told to", func(t *testing.T) {
		bubble(t, func(f *fixture, b ratelimit.Bucket) {
			f.drain(b)
			f.cache.Forget(b.Key, 5*time.Millisecond)
			time.Sleep(4 * time.Millisecond)
			f.expect(b, ratelimit.FromStore, ratelimit.Denied)
			f.expect(b, ratelimit.FromStore, ratelimit.Denied) // not learnt yet: what was given back may still come
			time.Sleep(2 * time.Millisecond)
			f.expect(b, ratelimit.FromStore, ratelimit.Denied)
			f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		})
	})
}

// TestLearnsLate: what the store says to a call that nobody waits for any more counts from when that was sent.
func TestLearnsLate(t *testing.T) {
	bubble(t, func(f *fixture, b ratelimit.Bucket) {
		for range 3 {
			f.one(b)
		}
		late := []ratelimit.Bucket{b}
		sent := time.Now()
		results := f.store.Store.Acquire(context.Background(), late, nil)
		time.Sleep(400 * time.Millisecond)
		f.cache.Learn(late, results, sent)
		f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		time.Sleep(600 * time.Millisecond)
		f.expect(b, ratelimit.FromStore, ratelimit.Denied) // known for a second
		f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		f.cache.Learn([]ratelimit.Bucket{with("a", b.Limits, ratelimit.Refund, 1)}, []ratelimit.Result{{Outcome: ratelimit.Admitted}}, time.Now())
		require.Equal(f, ratelimit.FromStore, f.one(b).Source)
	})
}

// TestAnswersOvertakenByARefundAreNotLearnt: the answer to a call that was sent before a refund came back says nothing about
// the bucket after it.
func TestAnswersOvertakenByARefundAreNotLearnt(t *testing.T) {
	bubble(t, func(f *fixture, b ratelimit.Bucket) {
		f.drain(b)
		f.cache.Forget(b.Key, 0)
		time.Sleep(time.Microsecond)
		slower := make(chan ratelimit.Result)
		f.store.back = 10 * time.Millisecond
		go func() { slower <- f.one(b) }()
		synctest.Wait() // it has been denied, and the answer is on its way
		f.store.back = 0
		refund := b
		refund.Op = ratelimit.Refund
		f.one(refund)
		require.Equal(f, ratelimit.Denied, (<-slower).Outcome)
		f.expect(b, ratelimit.FromStore, ratelimit.Admitted)
	})
}

// TestLaterAnswersWin: an answer that arrives late doesn't replace that of a call that was sent after it.
func TestLaterAnswersWin(t *testing.T) {
	bubble(t, func(f *fixture, b ratelimit.Bucket) {
		f.one(with("a", b.Limits, ratelimit.Force, 3))
		time.Sleep(time.Microsecond)
		slower := make(chan ratelimit.Result)
		f.store.back = 500 * time.Millisecond
		go func() { slower <- f.one(b) }()
		synctest.Wait()
		time.Sleep(300 * time.Millisecond)
		f.store.back = 0
		f.expect(b, ratelimit.FromStore, ratelimit.Denied)
		<-slower
		time.Sleep(700 * time.Millisecond)
		f.expect(b, ratelimit.FromCache, ratelimit.Denied) // 1200 ms after the first was sent, 900 after the second
	})
}

// TestRoomOnArrival: a call that would have been denied when it was sent, and is admitted, changes what others have to wait for.
func TestRoomOnArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, rejectcache.Options{})
		l := storetest.SL(2, 100*time.Millisecond)
		f.expect(with("a", l, ratelimit.Take, 2), ratelimit.FromStore, ratelimit.Admitted)
		f.expect(with("a", l, ratelimit.Take, 1), ratelimit.FromStore, ratelimit.Denied)
		time.Sleep(90 * time.Millisecond)
		f.store.there = 10 * time.Millisecond
		go func() { f.expect(with("a", l, ratelimit.Take, 2), ratelimit.FromStore, ratelimit.Admitted) }()
		synctest.Wait()
		time.Sleep(9 * time.Millisecond)
		require.Equal(t, time.Millisecond, f.expect(with("a", l, ratelimit.Take, 1), ratelimit.FromCache, ratelimit.Denied).Wait)
		f.store.there = 0
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, 100*time.Millisecond, f.expect(with("a", l, ratelimit.Take, 1), ratelimit.FromStore, ratelimit.Denied).Wait)
	})
}

// TestWhatReachesTheStoreBesideADenialIsForgotten: a refund in a call that the cache denies.
func TestWhatReachesTheStoreBesideADenialIsForgotten(t *testing.T) {
	bubble(t, func(f *fixture, b ratelimit.Bucket) {
		other := take("other", b.Limits)
		f.drain(b)
		f.drain(other)
		refund := other
		refund.Op = ratelimit.Refund
		results := f.cache.Acquire(context.Background(), []ratelimit.Bucket{b, refund}, nil)
		require.Equal(f, ratelimit.FromCache, results[0].Source)
		f.expect(other, ratelimit.FromStore, ratelimit.Admitted)
	})
}

func TestLearnsOnlyFromDenialsOfTheStore(t *testing.T) {
	tests := map[string]func(*ratelimit.Result){
		"closed":        func(r *ratelimit.Result) { r.Source = ratelimit.FromClosed },
		"local":         func(r *ratelimit.Result) { r.Source = ratelimit.FromLocal },
		"never":         func(r *ratelimit.Result) { r.Source = ratelimit.FromNever },
		"an error":      func(r *ratelimit.Result) { *r = ratelimit.Result{Source: ratelimit.FromStore, Err: errors.New("gone")} },
		"an admission":  func(r *ratelimit.Result) { r.Outcome = ratelimit.Admitted },
		"without delay": func(r *ratelimit.Result) { r.Wait = 0 },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(f *fixture, b ratelimit.Bucket) {
				f.one(with("a", b.Limits, ratelimit.Force, 3))
				f.store.answer = func(results []ratelimit.Result) { change(&results[0]) }
				for want := f.store.calls + 1; want < 5; want++ {
					f.one(b)
					require.Equal(f, want, f.store.calls)
				}
				require.Zero(f, f.cache.Stats())
			})
		})
	}
}

func TestTentativeDenialsAreHardlyRemembered(t *testing.T) {
	bubble(t, func(f *fixture, b ratelimit.Bucket) {
		f.one(with("a", b.Limits, ratelimit.Force, 3))
		time.Sleep(time.Millisecond)
		f.store.answer = func(results []ratelimit.Result) { results[0].Wait, results[0].Tentative = 900*time.Millisecond, true }
		f.expect(with("a", b.Limits, ratelimit.Take, 2), ratelimit.FromStore, ratelimit.Denied)
		f.expect(b, ratelimit.FromStore, ratelimit.Denied) // other costs may be promised something else
		time.Sleep(19 * time.Millisecond)
		r := f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		require.True(f, r.Tentative)
		require.Equal(f, 881*time.Millisecond, r.Wait, "no more than was promised")
		time.Sleep(time.Millisecond)
		f.store.answer = nil
		require.False(f, f.expect(b, ratelimit.FromStore, ratelimit.Denied).Tentative)
		time.Sleep(900 * time.Millisecond)
		require.False(f, f.expect(b, ratelimit.FromCache, ratelimit.Denied).Tentative, "the last word is remembered as ever")
	})
}

func TestCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, rejectcache.Options{})
		l := storetest.TB(10, 60)
		f.one(with("a", l, ratelimit.Take, 8))
		f.expect(with("a", l, ratelimit.Take, 5), ratelimit.FromStore, ratelimit.Denied) // two are left
		f.expect(with("a", l, ratelimit.Peek, 5), ratelimit.FromCache, ratelimit.Denied)
		more := f.expect(with("a", l, ratelimit.Take, 9), ratelimit.FromCache, ratelimit.Denied)
		require.InDelta(t, 7*time.Second, more.Wait, float64(2*time.Microsecond))
		require.GreaterOrEqual(t, more.Wait, 7*time.Second)
		less := f.expect(with("a", l, ratelimit.Take, 3), ratelimit.FromCache, ratelimit.Denied)
		require.InDelta(t, time.Second, less.Wait, float64(2*time.Microsecond))
		require.Equal(t, ratelimit.FromNever, f.one(with("a", l, ratelimit.Take, 11)).Source)
		f.expect(with("a", l, ratelimit.Take, 2), ratelimit.FromStore, ratelimit.Admitted)

		f.one(with("b", log, ratelimit.Take, 2))
		f.expect(with("b", log, ratelimit.Take, 2), ratelimit.FromStore, ratelimit.Denied)
		f.expect(with("b", log, ratelimit.Take, 3), ratelimit.FromStore, ratelimit.Denied) // when the third leaves, nobody has said
		f.expect(with("b", log, ratelimit.Take, 2), ratelimit.FromCache, ratelimit.Denied)
		f.expect(with("b", log, ratelimit.Take, 3), ratelimit.FromCache, ratelimit.Denied)
		f.expect(with("b", log, ratelimit.Take, 1), ratelimit.FromStore, ratelimit.Admitted)
		f.one(with("b", log, ratelimit.Refund, 2))
		f.expect(with("b", log, ratelimit.Take, 2), ratelimit.FromStore, ratelimit.Admitted)
	})
}

func TestSeveralBuckets(t *testing.T) {
	shadow := func(b ratelimit.Bucket) ratelimit.Bucket { b.Shadow = true; return b }
	empty, full := take("empty", slow), take("full", slow)
	force, refund := with("forced", slow, ratelimit.Force, 1), with("returned", slow, ratelimit.Refund, 1)
	tests := []struct {
		name    string
		buckets []ratelimit.Bucket
		asked   []ratelimit.Op
		sources []string // with an ! where there is no outcome, a - where it is a denial
	}{
		{"one known denies all", []ratelimit.Bucket{full, empty, full}, nil, []string{"cache!", "cache-", "cache!"}},
		{"all that are known are told", []ratelimit.Bucket{empty, full, take("empty log", log)}, nil, []string{"cache-", "cache!", "cache-"}},
		{"a peek too", []ratelimit.Bucket{with("empty", slow, ratelimit.Peek, 1), full}, nil, []string{"cache-", "cache!"}},
		{"beside a peek", []ratelimit.Bucket{with("full", slow, ratelimit.Peek, 1), empty}, nil, []string{"cache!", "cache-"}},
		{"a shadow is not asked", []ratelimit.Bucket{shadow(full), empty, shadow(full)}, nil, []string{"cache!", "cache-", "cache!"}},
		{"a shadow denies nothing", []ratelimit.Bucket{shadow(empty), full}, []ratelimit.Op{ratelimit.Take, ratelimit.Take}, []string{"store-", "store"}},
		{"force and refund reach the store", []ratelimit.Bucket{force, full, empty, refund}, []ratelimit.Op{ratelimit.Force, ratelimit.Refund}, []string{"store", "cache!", "cache-", "store"}},
		{"unknown ones are asked together", []ratelimit.Bucket{full, force}, []ratelimit.Op{ratelimit.Take, ratelimit.Force}, []string{"store", "store"}},
		{"none", nil, nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, rejectcache.Options{})
				f.drain(empty)
				f.drain(take("empty log", log))
				f.store.asked = nil
				stale := make([]ratelimit.Result, len(tt.buckets), len(tt.buckets)+1)
				for i := range stale {
					stale[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Wait: 1, Err: errors.New("stale")}
				}
				results := f.cache.Acquire(t.Context(), tt.buckets, stale[:0])
				require.Equal(t, tt.asked, f.store.asked)
				var sources []string
				for _, r := range results {
					require.NoError(t, r.Err)
					require.Equal(t, r.Outcome == ratelimit.Denied, r.Wait > 0)
					sources = append(sources, r.Source.String()+map[ratelimit.Outcome]string{0: "!", ratelimit.Denied: "-"}[r.Outcome])
				}
				require.Equal(t, tt.sources, sources)
			})
		})
	}
}

// TestShadowsAreNotLearntFrom: a shadow bucket's key is its own, but even with one that is not nothing is learnt.
func TestShadowsAreNotLearntFrom(t *testing.T) {
	bubble(t, func(f *fixture, b ratelimit.Bucket) {
		f.one(with("a", b.Limits, ratelimit.Force, 3))
		b.Shadow = true
		f.expect(b, ratelimit.FromStore, ratelimit.Denied)
		f.expect(b, ratelimit.FromStore, ratelimit.Denied)
	})
}

func TestBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, rejectcache.Options{Entries: 64, MaxAge: time.Hour})
		for i := range 1000 { // each learnt, and in the way of another
			b := take(fmt.Sprint(i), slow)
			f.drain(b)
			f.expect(b, ratelimit.FromCache, ratelimit.Denied)
			time.Sleep(time.Microsecond)
		}
		known, calls := 0, f.store.calls
		for i := 999; i >= 0; i-- {
			if f.one(take(fmt.Sprint(i), slow)); f.store.calls == calls {
				known++
			}
			calls = f.store.calls
		}
		require.Greater(t, known, 20)
		require.LessOrEqual(t, known, 64)
		time.Sleep(time.Second)
		last := take("0", slow)
		require.Equal(t, ratelimit.FromStore, f.one(last).Source, "older than a second at most, whatever the option")
	})
}

func TestLongKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, rejectcache.Options{})
		part := policy.Part{Name: "user", Value: strings.Repeat("x", 60)}
		b := ratelimit.Bucket{Key: policy.NewKey(part, "id", part, part), Limits: slow, Op: ratelimit.Take, Cost: 1}
		f.drain(b)
		f.expect(b, ratelimit.FromCache, ratelimit.Denied)
		b.Key = policy.NewKey(part, "id", part, policy.Part{Name: "user", Value: part.Value[1:] + "y"})
		f.expect(b, ratelimit.FromStore, ratelimit.Admitted)
	})
}

// TestConcurrentRefunds: whatever overtakes what, once all is quiet every token that was given back can be taken at once.
func TestConcurrentRefunds(t *testing.T) {
	for _, l := range []algorithm.Limits{storetest.TB(5, 1e-6), storetest.SL(5, 1000*time.Hour)} {
		for round := range 5 {
			var admitted int
			var mu sync.Mutex
			c := rejectcache.New(rejectcache.Options{Store: memorybackend.New(memorybackend.Options{})})
			var callers sync.WaitGroup
			for range 4 {
				callers.Go(func() {
					b, n := []ratelimit.Bucket{take("a", l)}, 0
					var results []ratelimit.Result
					for range 2000 {
						if results = c.Acquire(context.Background(), b, results); results[0].Outcome != ratelimit.Admitted {
							continue
						}
						n++
						back := b[0]
						back.Op = ratelimit.Refund
						results = c.Acquire(context.Background(), []ratelimit.Bucket{back}, results)
					}
					mu.Lock()
					admitted += n
					mu.Unlock()
				})
			}
			callers.Wait()
			require.Positive(t, admitted)
			b := []ratelimit.Bucket{take("a", l)}
			for i := range 5 {
				require.Equal(t, ratelimit.Admitted, c.Acquire(t.Context(), b, nil)[0].Outcome, "round %d: token %d", round, i)
			}
			require.Equal(t, ratelimit.Denied, c.Acquire(t.Context(), b, nil)[0].Outcome)
		}
	}
}
