package memorybackend_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strconv"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const manyKeys = 2_000_000

// endless is a bucket that neither runs out nor fills again while a benchmark runs.
var endless = algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 1e12, Rate: 1e-12}

func keyOf(i int) policy.Key {
	return policy.NewKey(policy.Part{Name: "tenant", Value: "acme"}, "api-free",
		policy.Part{Name: "apiKey", Value: "ak_" + strconv.FormatUint(uint64(i)*0x9E3779B97F4A7C15, 16)})
}

func benchmarkKeys(n int) []policy.Key {
	keys := make([]policy.Key, n)
	for i := range keys {
		keys[i] = keyOf(i)
	}
	return keys
}

// decide runs one-bucket decisions over keys. Their order in the tables is random, that of their bytes is not: a caller has just
// written the key that it asks for.
func decide(b *testing.B, s *memorybackend.Store, l algorithm.Limits, keys []policy.Key) {
	b.Helper()
	b.ReportAllocs()
	ctx := context.Background()
	bucket := []ratelimit.Bucket{{Limits: l, Cost: 1, Op: ratelimit.Take}}
	results := make([]ratelimit.Result, 0, 1)
	next := 0
	for b.Loop() {
		bucket[0].Key = keys[next]
		if next++; next == len(keys) {
			next = 0
		}
		results = s.Acquire(ctx, bucket, results)
	}
}

func fill(s *memorybackend.Store, l algorithm.Limits, keys []policy.Key) {
	bucket := []ratelimit.Bucket{{Limits: l, Cost: 1, Op: ratelimit.Take}}
	results := make([]ratelimit.Result, 0, 1)
	for _, k := range keys {
		bucket[0].Key = k
		results = s.Acquire(context.Background(), bucket, results)
	}
}

func BenchmarkHot(b *testing.B) {
	decide(b, memorybackend.New(memorybackend.Options{}), endless, benchmarkKeys(1))
}

func BenchmarkHotLog(b *testing.B) {
	l := algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 10, Window: 1000}
	decide(b, memorybackend.New(memorybackend.Options{}), l, benchmarkKeys(1))
}

func BenchmarkCold2M(b *testing.B) {
	s, keys := memorybackend.New(memorybackend.Options{}), benchmarkKeys(manyKeys)
	fill(s, endless, keys)
	decide(b, s, endless, keys)
}

func BenchmarkFourBuckets(b *testing.B) {
	s, keys := memorybackend.New(memorybackend.Options{}), benchmarkKeys(4)
	buckets := make([]ratelimit.Bucket, len(keys))
	for i, k := range keys {
		buckets[i] = ratelimit.Bucket{Key: k, Limits: endless, Cost: 1, Op: ratelimit.Take}
	}
	results := make([]ratelimit.Result, 0, len(keys))
	b.ReportAllocs()
	for b.Loop() {
		results = s.Acquire(context.Background(), buckets, results)
	}
}

func BenchmarkParallel(b *testing.B) {
	s, keys := memorybackend.New(memorybackend.Options{}), benchmarkKeys(100_000)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		bucket := []ratelimit.Bucket{{Limits: endless, Cost: 1, Op: ratelimit.Take}}
		results := make([]ratelimit.Result, 0, 1)
		for i := rand.IntN(len(keys)); pb.Next(); i++ {
			bucket[0].Key = keys[i%len(keys)]
			results = s.Acquire(context.Background(), bucket, results)
		}
	})
}

// BenchmarkMemory reports bytes per bucket, which do not depend on b.N.
func BenchmarkMemory(b *testing.B) {
	login := algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 10, Window: 3600e6}
	for _, c := range []struct {
		name   string
		limits algorithm.Limits
		takes  int
	}{{"tokens", endless, 1}, {"log-of-1", login, 1}, {"log-of-10", login, 10}} {
		b.Run(c.name, func(b *testing.B) {
			before := heap()
			s := memorybackend.New(memorybackend.Options{})
			for range c.takes {
				for i := range manyKeys {
					fill(s, c.limits, []policy.Key{keyOf(i)})
				}
			}
			bytes := heap() - before
			for b.Loop() {
				runtime.KeepAlive(s)
			}
			b.ReportMetric(float64(bytes)/manyKeys, "B/bucket")
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
