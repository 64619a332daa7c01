package blocklist_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func key(name string) policy.Key { return policy.NewKey(policy.Part{Name: "user", Value: name}, "p") }

func block(name string, d time.Duration) blocklist.Block {
	now := time.Now()
	return blocklist.Block{PolicyID: "p", Key: key(name).String(), Since: now, Until: now.Add(d), Reason: "test", Actor: "tester"}
}

func bucket(name string, op ratelimit.Op, cost uint64) ratelimit.Bucket {
	return ratelimit.Bucket{Key: key(name), Limits: storetest.TB(10, 1e-9), Op: op, Cost: cost}
}

func newStore() *blocklist.Store { return blocklist.New(memorybackend.New(memorybackend.Options{})) }

func left(t *testing.T, s ratelimit.Store, name string) float64 {
	t.Helper()
	return s.Acquire(t.Context(), []ratelimit.Bucket{bucket(name, ratelimit.Peek, 1)}, nil)[0].Remaining
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		var now atomic.Int64
		now.Store(1)
		s := blocklist.New(memorybackend.New(memorybackend.Options{Now: now.Load}))
		s.Use([]blocklist.Block{block("of somebody else", time.Hour)})
		return storetest.Harness{Store: s, Advance: func(d time.Duration) { now.Add(d.Microseconds()) }, AcrossTags: true}
	})
}

func TestABlockDeniesUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		require.NoError(t, s.Add(block("a", time.Minute)))
		for _, op := range []ratelimit.Op{ratelimit.Take, ratelimit.Peek} {
			r := s.Acquire(t.Context(), []ratelimit.Bucket{bucket("a", op, 1)}, nil)
			require.Equal(t, ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromBlocked, Wait: time.Minute}, r[0])
		}
		time.Sleep(time.Minute - 1)
		require.Len(t, s.Blocks(), 1)
		r := s.Acquire(t.Context(), []ratelimit.Bucket{bucket("a", ratelimit.Take, 1)}, nil)
		require.Equal(t, time.Duration(1), r[0].Wait)
		time.Sleep(time.Nanosecond)
		require.Empty(t, s.Blocks())
		_, found := s.Find(key("a").Bytes())
		require.False(t, found)
		r = s.Acquire(t.Context(), []ratelimit.Bucket{bucket("a", ratelimit.Take, 1)}, nil)
		require.Equal(t, ratelimit.Admitted, r[0].Outcome)
		require.Zero(t, s.Len(), "what is over takes no room")
	})
}

func TestADenialByABlockChargesNobody(t *testing.T) {
	s := newStore()
	require.NoError(t, s.Add(block("b", time.Minute)))
	shadow := bucket("s", ratelimit.Take, 1)
	shadow.Shadow = true
	r := s.Acquire(t.Context(), []ratelimit.Bucket{
		bucket("a", ratelimit.Take, 3), bucket("b", ratelimit.Take, 3), shadow, bucket("c", ratelimit.Force, 2), bucket("d", ratelimit.Put, 4),
	}, nil)
	require.Equal(t, ratelimit.Result{Source: ratelimit.FromBlocked}, r[0], "not asked")
	require.Equal(t, ratelimit.Denied, r[1].Outcome)
	require.Equal(t, ratelimit.Result{Source: ratelimit.FromBlocked}, r[2])
	require.Equal(t, 8.0, r[3].Remaining, "what is always carried out is")
	require.Equal(t, 6.0, r[4].Remaining)
	require.Equal(t, 10.0, left(t, s, "a"))
	require.Equal(t, 10.0, left(t, s, "s"))
	require.True(t, s.Remove(key("b").String()))
	require.False(t, s.Remove(key("b").String()))
	require.Equal(t, 10.0, left(t, s, "b"))
}

func TestABlockedShadowChangesNothing(t *testing.T) {
	s := newStore()
	require.NoError(t, s.Add(block("s", time.Minute)))
	shadow := bucket("s", ratelimit.Take, 1)
	shadow.Shadow = true
	r := s.Acquire(t.Context(), []ratelimit.Bucket{shadow, bucket("a", ratelimit.Take, 1)}, nil)
	require.Equal(t, ratelimit.FromBlocked, r[0].Source)
	require.Equal(t, ratelimit.Denied, r[0].Outcome)
	require.Equal(t, ratelimit.Admitted, r[1].Outcome)
	require.Equal(t, 9.0, r[1].Remaining)
	s.Use(nil)
	require.Equal(t, 10.0, left(t, s, "s"), "not charged")
}

func TestTheListIsBounded(t *testing.T) {
	s := newStore()
	var many []blocklist.Block
	for i := range blocklist.Most + 5 {
		many = append(many, block(fmt.Sprint(i), time.Hour+time.Duration(i)*time.Second))
	}
	many = append(many, block("over", -time.Second))
	s.Use(many)
	require.Len(t, s.Blocks(), blocklist.Most)
	_, found := s.Find(key("4").Bytes())
	require.False(t, found, "those that end first are left out")
	_, found = s.Find(key("5").Bytes())
	require.True(t, found)
	require.ErrorIs(t, s.Add(block("new", time.Hour)), blocklist.ErrFull)
	require.NoError(t, s.Add(block("7", 2*time.Hour)), "in place of another")
	b, _ := s.Find(key("7").Bytes())
	require.InDelta(t, 2*time.Hour, time.Until(b.Until), float64(time.Minute))
}

// Blocks that end one after another cost the decisions between nothing: a new table of 10,000 takes 10 ms, for which all would wait.
func TestBlocksThatEndAreNotTidiedByDecisions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var list []blocklist.Block
		for i := range blocklist.Most {
			list = append(list, block(fmt.Sprint(i), time.Duration(i+1)*time.Millisecond))
		}
		s.Use(list)
		call, results := []ratelimit.Bucket{bucket("9999", ratelimit.Take, 1)}, make([]ratelimit.Result, 1)
		for i := range 10 {
			time.Sleep(time.Second - time.Nanosecond)
			if allocations := testing.AllocsPerRun(1, func() { s.Acquire(t.Context(), call, results) }); !raceEnabled {
				require.Zero(t, allocations)
			}
			require.Equal(t, ratelimit.FromBlocked, results[0].Source)
			require.Equal(t, blocklist.Most-1000*i-999, s.Len())
			time.Sleep(time.Nanosecond)
		}
		require.Zero(t, s.Len())
		require.Equal(t, ratelimit.Admitted, s.Acquire(t.Context(), call, results)[0].Outcome)
	})
}

func TestNothingIsAllocated(t *testing.T) {
	buckets := []ratelimit.Bucket{bucket("a", ratelimit.Take, 1), bucket("b", ratelimit.Take, 1)}
	for i := range buckets {
		buckets[i].Limits.Capacity = 1e12
	}
	results := make([]ratelimit.Result, 2)
	s := newStore()
	ctx := t.Context()
	calls := func() { s.Acquire(ctx, buckets, results) }
	require.Zero(t, testing.AllocsPerRun(100, calls))
	require.NoError(t, s.Add(block("other", time.Hour)))
	require.Zero(t, testing.AllocsPerRun(100, calls))
	if raceEnabled {
		return // its pools forget
	}
	require.NoError(t, s.Add(block("b", time.Hour)))
	require.Zero(t, testing.AllocsPerRun(100, calls))
}

// TestModel compares the decorated store to one that is asked, by brute force, only about what the rules leave.
func TestModel(t *testing.T) {
	names := []string{"a", "b", "c", "d"}
	ops := []ratelimit.Op{ratelimit.Take, ratelimit.Take, ratelimit.Peek, ratelimit.Refund, ratelimit.Force, ratelimit.Reset, ratelimit.Put}
	rapid.Check(t, func(t *rapid.T) {
		var now int64 = 1
		clock := func() int64 { return now }
		s := blocklist.New(memorybackend.New(memorybackend.Options{Now: clock}))
		plain := memorybackend.New(memorybackend.Options{Now: clock})
		blocked := map[string]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now += rapid.Int64Range(0, 2e6).Draw(t, "us")
			if rapid.IntRange(0, 3).Draw(t, "change") == 0 {
				name := rapid.SampledFrom(names).Draw(t, "name")
				if blocked[name] = !blocked[name]; blocked[name] {
					require.NoError(t, s.Add(block(name, time.Hour)))
				} else {
					require.True(t, s.Remove(key(name).String()))
				}
			}
			var call []ratelimit.Bucket
			for _, name := range rapid.Permutation(names).Draw(t, "order")[:rapid.IntRange(1, 4).Draw(t, "n")] {
				b := bucket(name, rapid.SampledFrom(ops).Draw(t, "op"), rapid.Uint64Range(1, 6).Draw(t, "cost"))
				b.Limits = algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 10, Rate: 1e-6}
				b.Shadow = rapid.IntRange(0, 3).Draw(t, "shadow") == 0
				call = append(call, b)
			}
			got := s.Acquire(t.Context(), call, nil)
			want := model(t, plain, call, func(b *ratelimit.Bucket) bool { return isBlocked(blocked, b) })
			for i := range want {
				if want[i].Source == ratelimit.FromBlocked && want[i].Outcome == ratelimit.Denied {
					require.Positive(t, got[i].Wait)
					got[i].Wait = 0
				}
				require.Equal(t, want[i], got[i], "%d of %+v", i, call)
			}
		}
	})
}

func isBlocked(blocked map[string]bool, b *ratelimit.Bucket) bool {
	for name, is := range blocked {
		if is && key(name).String() == b.Key.String() {
			return true
		}
	}
	return false
}

// model asks the store for each bucket that it may be asked for.
func model(t *rapid.T, store ratelimit.Store, call []ratelimit.Bucket, blocked func(*ratelimit.Bucket) bool) []ratelimit.Result {
	denied := false
	for i := range call {
		if b := &call[i]; (b.Op == ratelimit.Take || b.Op == ratelimit.Peek) && !b.Shadow && blocked(b) {
			denied = true
		}
	}
	results := make([]ratelimit.Result, len(call))
	var rest []ratelimit.Bucket
	var at []int
	for i := range call {
		b := &call[i]
		takes := b.Op == ratelimit.Take || b.Op == ratelimit.Peek
		switch {
		case takes && blocked(b):
			results[i] = ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromBlocked}
		case takes && denied:
			results[i] = ratelimit.Result{Source: ratelimit.FromBlocked}
		default:
			rest, at = append(rest, *b), append(at, i)
		}
	}
	for j, r := range store.Acquire(t.Context(), rest, nil) {
		results[at[j]] = r
	}
	return results
}

func BenchmarkNothingBlocked(b *testing.B) { benchmark(b, nil) }
func BenchmarkOthersBlocked(b *testing.B)  { benchmark(b, []blocklist.Block{block("other", time.Hour)}) }

func BenchmarkBlocked(b *testing.B) { benchmark(b, []blocklist.Block{block("a", time.Hour)}) }

func BenchmarkWithoutTheList(b *testing.B) { measure(b, memorybackend.New(memorybackend.Options{})) }

func benchmark(b *testing.B, list []blocklist.Block) {
	s := newStore()
	s.Use(list)
	measure(b, s)
}

func measure(b *testing.B, s ratelimit.Store) {
	buckets := []ratelimit.Bucket{bucket("a", ratelimit.Take, 1)}
	buckets[0].Limits.Capacity = 1e14
	results := make([]ratelimit.Result, 1)
	b.ReportAllocs()
	for b.Loop() {
		s.Acquire(b.Context(), buckets, results)
	}
}
