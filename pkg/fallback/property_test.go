package fallback_test

import (
	"fmt"
	"strings"
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

// outage is a store whose shards fail now and then, and a model of what it holds.
type outage struct {
	*broken
	*fallback.Store
	down map[string]bool
	left map[string]float64
	lost map[string]float64 // by undos that failed, in this step
}

var modelShards = []string{"a", "b", "c"}

func shardOfKey(key []byte) string {
	name, _, _ := strings.Cut(string(key[strings.LastIndexByte(string(key), ':')+1:]), "-")
	return name
}

func newOutage() *outage {
	o := &outage{down: map[string]bool{}, left: map[string]float64{}, lost: map[string]float64{}}
	o.broken = &broken{
		Store: memorybackend.New(memorybackend.Options{MaxBuckets: 1000}),
		fails: func(b *ratelimit.Bucket) bool { return o.down[shardOfKey(b.Key.Bytes())] },
	}
	o.Store = fallback.New(fallback.Options{
		Store: o.broken, Shard: shardOfKey,
		OnUndo: func(b *ratelimit.Bucket, err error) {
			if err != nil {
				o.lost[b.Key.String()] += float64(b.Cost)
			}
		},
	})
	return o
}

// drawCall makes a call of distinct buckets.
func drawCall(rt *rapid.T) []ratelimit.Bucket {
	names := rapid.SliceOfNDistinct(rapid.IntRange(0, 8), 1, 5, rapid.ID[int]).Draw(rt, "buckets")
	var buckets []ratelimit.Bucket
	for _, n := range names {
		l := []algorithm.Limits{tokens, log}[n%2]
		b := take(fmt.Sprintf("%s-%d", modelShards[n%3], n), l, policy.FailureMode(rapid.IntRange(0, 3).Draw(rt, "mode")))
		b.Op = rapid.SampledFrom([]ratelimit.Op{
			ratelimit.Take, ratelimit.Take, ratelimit.Take, ratelimit.Peek, ratelimit.Force, ratelimit.Refund,
		}).Draw(rt, "op")
		b.Cost = rapid.Uint64Range(1, 2).Draw(rt, "cost")
		buckets = append(buckets, b)
	}
	return buckets
}

// account makes the model follow what the results say was done.
func (o *outage) account(buckets []ratelimit.Bucket, results []ratelimit.Result) {
	allowed := true
	for i, r := range results {
		allowed = allowed && (r.Outcome == ratelimit.Admitted || !buckets[i].Op.Deniable())
	}
	for i, r := range results {
		key, cost, capacity := buckets[i].Key.String(), float64(buckets[i].Cost), buckets[i].Limits.Capacity
		if _, ok := o.left[key]; !ok {
			o.left[key] = capacity
		}
		if r.Source == ratelimit.FromStore {
			switch op := buckets[i].Op; {
			case op == ratelimit.Take && allowed:
				o.left[key] -= cost
			case op == ratelimit.Force:
				o.left[key] = max(0, o.left[key]-cost)
			case op == ratelimit.Refund:
				o.left[key] = min(capacity, o.left[key]+cost)
			}
		}
		o.left[key] -= o.lost[key]
	}
	clear(o.lost)
}

// TestOutages: whatever fails, there is a decision for each bucket, and what the store has charged is what was admitted.
func TestOutages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// Only what testing.TB has: in a bubble there is no asking for the deadline of the test.
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			o := newOutage()
			defer o.Close()
			var results []ratelimit.Result
			for range rapid.IntRange(1, 60).Draw(rt, "steps") {
				for _, s := range modelShards { // for several calls, so that breakers open
					o.down[s] = o.down[s] != (rapid.IntRange(0, 5).Draw(rt, "change of "+s) == 0)
				}
				time.Sleep(time.Duration(rapid.SampledFrom([]int{0, 0, 0, 1, 1, 15, 30, 600}).Draw(rt, "pause")) * time.Millisecond)
				buckets := drawCall(rt)
				results = o.Store.Acquire(t.Context(), buckets, results)
				synctest.Wait() // all is given back
				require.Len(rt, results, len(buckets))
				for i, r := range results {
					require.NoError(rt, r.Err)
					require.Contains(rt, []ratelimit.Outcome{ratelimit.Admitted, ratelimit.Denied}, r.Outcome)
					if r.Source == ratelimit.FromClosed {
						require.Equal(rt, policy.Closed, buckets[i].OnFailure)
						require.Contains(rt, []time.Duration{time.Second, 2 * time.Second, 3 * time.Second}, r.Wait)
					}
				}
				o.account(buckets, results)
				for i := range buckets {
					require.InDelta(rt, o.left[buckets[i].Key.String()], o.broken.left(buckets[i]), 1e-6, "%d %v %v", i, buckets, results)
				}
			}
		})
	})
}

// TestShadowsChangeNothing: of two calls that differ by shadow buckets on failing shards the enforced ones are decided alike.
func TestShadowsChangeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, func(rt *rapid.T) {
			with, without := newOutage(), newOutage()
			defer with.Close()
			defer without.Close()
			for range rapid.IntRange(1, 20).Draw(rt, "steps") {
				down := map[string]bool{"a": rapid.IntRange(0, 3).Draw(rt, "a is up") > 0}
				with.down, without.down = down, down
				b := take("b-1", tokens, policy.FailureMode(rapid.IntRange(1, 3).Draw(rt, "mode")))
				more := shadow(take("a-1", tokens, policy.FailureMode(rapid.IntRange(1, 3).Draw(rt, "mode of the shadow"))))
				want := without.Store.Acquire(t.Context(), []ratelimit.Bucket{b}, nil)
				got := with.Store.Acquire(t.Context(), []ratelimit.Bucket{more, b}, nil)
				synctest.Wait()
				require.Equal(rt, want[0].Outcome, got[1].Outcome)
				require.Equal(rt, want[0].Source, got[1].Source)
				require.InDelta(rt, want[0].Remaining, got[1].Remaining, 1e-6)
				require.InDelta(rt, without.broken.left(b), with.broken.left(b), 1e-6)
			}
		})
	})
}
