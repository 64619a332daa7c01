package fallback_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// errLost is that of a call which was carried out and whose answer was lost.
var errLost = errors.New("lost")

// hub is a store that several instances share, and that can fail as a whole.
type hub struct {
	*memorybackend.Store

	mu     sync.Mutex
	down   bool
	lose   bool                         // answers, of calls that are carried out
	before func(ops []ratelimit.Bucket) // called before a call is carried out
	forced map[string]uint64            // cost by key
	calls  map[ratelimit.Op]int         // buckets by operation
}

func newHub() *hub {
	return &hub{Store: memorybackend.New(memorybackend.Options{MaxBuckets: 1000}), forced: map[string]uint64{}, calls: map[ratelimit.Op]int{}}
}

func (h *hub) set(down, lose bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down, h.lose = down, lose
}

func (h *hub) forcedOf(b ratelimit.Bucket) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.forced[b.Key.String()]
}

func (h *hub) called(op ratelimit.Op) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls[op]
}

func (h *hub) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	h.mu.Lock()
	before := h.before
	h.mu.Unlock()
	if before != nil {
		before(buckets)
	}
	h.mu.Lock()
	down, lose := h.down, h.lose
	for i := range buckets {
		h.calls[buckets[i].Op]++
		if buckets[i].Op == ratelimit.Force && (!down || lose) {
			h.forced[buckets[i].Key.String()] += buckets[i].Cost
		}
	}
	h.mu.Unlock()
	err := errGone
	if !down || lose {
		results = h.Store.Acquire(ctx, buckets, results)
		err = errLost
	}
	if !down {
		return results
	}
	results = append(results[:0], make([]ratelimit.Result, len(buckets))...)
	for i := range results {
		results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: err}
	}
	return results
}

// left is what a bucket holds in the hub.
func (h *hub) left(b ratelimit.Bucket) float64 {
	b.Op, b.Cost, b.Shadow = ratelimit.Peek, 1, false
	return h.Store.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)[0].Remaining
}

// instance makes one of so many that share the hub.
func (h *hub) instance(t testing.TB, index, count int, change ...func(*fallback.Options)) *fallback.Store {
	o := fallback.Options{
		Store: h, Local: memorybackend.New(memorybackend.Options{MaxBuckets: 10_000}), Seen: 1000,
		Instances: func() fallback.Instances { return fallback.Instances{Count: count, Index: index} },
		Classify: func(err error) fallback.Fault {
			return fallback.Fault{Reason: "test", Trouble: true, MayHaveRun: errors.Is(err, errLost)}
		},
	}
	for _, c := range change {
		c(&o)
	}
	s := fallback.New(o)
	t.Cleanup(s.Close)
	return s
}

func (h *hub) instances(t testing.TB, count int, change ...func(*fallback.Options)) []*fallback.Store {
	all := make([]*fallback.Store, count)
	for i := range all {
		all[i] = h.instance(t, i, count, change...)
	}
	return all
}

// ask makes one call.
func ask(s ratelimit.Store, buckets ...ratelimit.Bucket) []ratelimit.Result {
	return s.Acquire(context.Background(), buckets, nil)
}

// drain calls until it is denied, and returns how many were admitted.
func drain(t testing.TB, s ratelimit.Store, b ratelimit.Bucket) (admitted int) {
	t.Helper()
	for range 10_000 {
		r := ask(s, b)[0]
		require.NoError(t, r.Err)
		if r.Outcome == ratelimit.Denied {
			return admitted
		}
		admitted++
	}
	require.Fail(t, "never denied")
	return admitted
}

// daily is TB{100, refillPerDay 1}.
var daily = algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 100, Rate: algorithm.RatePer(24*time.Hour, 1)}

func local(name string, l algorithm.Limits) ratelimit.Bucket { return take(name, l, policy.Local) }

func cost(b ratelimit.Bucket, n uint64) ratelimit.Bucket { b.Cost = n; return b }
