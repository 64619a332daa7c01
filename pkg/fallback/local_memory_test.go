package fallback_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// gone fails at once.
type gone struct{}

func (gone) Acquire(_ context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	results = append(results[:0], make([]ratelimit.Result, len(buckets))...)
	for i := range results {
		results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: errGone}
	}
	return results
}

// The bounds that the service sets, or has by default.
const localBuckets, seen, debts = 262_144, 320_000, 65_536

// orphan is an instance whose store is gone, with a part of the bounds.
func orphan(t testing.TB, part int) *fallback.Store {
	buckets := localBuckets / part
	s := fallback.New(fallback.Options{
		Store: gone{}, Local: memorybackend.New(memorybackend.Options{MaxBuckets: buckets, MaxRuns: int64(buckets)}),
		Seen: seen / part, MaxDebts: debts / part,
		Instances: func() fallback.Instances { return fallback.Instances{Count: 4} },
		Classify:  func(error) fallback.Fault { return fallback.Fault{Trouble: true} },
	})
	t.Cleanup(s.Close)
	return s
}

// TestLocalMemory: whatever clients send while the store is gone, what is kept of it is bounded.
func TestLocalMemory(t *testing.T) {
	part, name := 16, "policy-of-a-usual-length:k:ak_5b11618c2e44"
	if os.Getenv("ENVOY_RLS_LONG") == "1" {
		part = 1
	}
	keys := 400_000 / part
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // a pool lets go at the second
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / 1e6
	}
	before := heap()
	s := orphan(t, part)
	empty := heap()
	results := make([]ratelimit.Result, 2)
	buckets := make([]ratelimit.Bucket, 2)
	for k := range keys {
		buckets[0] = local(fmt.Sprint(name, k), daily)
		buckets[1] = local(fmt.Sprint(name, -k-1), storetest.SL(100, 1e9))
		s.Acquire(t.Context(), buckets, results)
	}
	full := heap()
	t.Logf("%.0f MB, of which %.0f MB from the start, after %d keys", full-before, empty-before, 2*keys)
	require.Less(t, full-before, 2+100/float64(part))
	require.EqualValues(t, debts/part, s.Debts().Buckets)
	runtime.KeepAlive(s)
}

// BenchmarkOutage is what a decision by a share costs.
func BenchmarkOutage(b *testing.B) {
	for _, keys := range []int{1, 100_000} {
		b.Run(fmt.Sprintf("keys=%d", keys), func(b *testing.B) {
			s := orphan(b, 1)
			buckets := make([]ratelimit.Bucket, keys)
			for k := range buckets {
				buckets[k] = local(fmt.Sprint("policy-of-a-usual-length:k:ak_5b11618c2e44", k), daily)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				results := make([]ratelimit.Result, 1)
				for k := 0; pb.Next(); k++ {
					s.Acquire(b.Context(), buckets[k%keys:k%keys+1], results)
				}
			})
		})
	}
}

// halfGone answers at once, and fails for buckets with the limits daily.
type halfGone struct{ instant }

func (s halfGone) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if cap(results) < len(buckets) {
		results = make([]ratelimit.Result, len(buckets))
	}
	results = s.instant.Acquire(ctx, buckets, results[:len(buckets)])
	for i := range buckets {
		if buckets[i].Limits == daily {
			results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: errGone}
		}
	}
	return results
}

// BenchmarkOwing is what a call to a shard that works costs while buckets of another one owe something.
func BenchmarkOwing(b *testing.B) {
	s := fallback.New(fallback.Options{
		Store: halfGone{}, Local: newHub(),
		Shard:   func(key []byte) string { return string(key[len(key)-1:]) },
		Timeout: time.Minute,
	})
	defer s.Close()
	ask(s, local("dead", daily))
	buckets := []ratelimit.Bucket{local("good", storetest.TB(1e9, 1e6))}
	require.EqualValues(b, 1, s.Debts().Buckets)
	var results []ratelimit.Result
	b.ReportAllocs()
	for b.Loop() {
		results = s.Acquire(b.Context(), buckets, results)
	}
}
