package rejectcache_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
)

// BenchmarkAcquire compares the cache in front of the store in memory with that store alone.
func BenchmarkAcquire(b *testing.B) {
	endless := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 1e12, Rate: 1e-12}
	drained := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 1, Rate: 1e-12}
	memory := func() ratelimit.Store { return memorybackend.New(memorybackend.Options{}) }
	stores := map[string]func() ratelimit.Store{
		"memory": memory,
		"cached": func() ratelimit.Store { return rejectcache.New(rejectcache.Options{Store: memory()}) },
	}
	for _, name := range []string{"memory", "cached"} {
		for _, c := range []struct {
			name   string
			limits algorithm.Limits
			keys   int
		}{{"admitted hot", endless, 1}, {"denied hot", drained, 1}, {"admitted cold", endless, 1_000_000}} {
			b.Run(name+" "+c.name, func(b *testing.B) { benchmark(b, stores[name](), c.limits, c.keys) })
		}
	}
}

func keyOf(n int) policy.Key {
	return policy.NewKey(policy.Part{Name: "tenant", Value: "acme"}, "api-free", policy.Part{Name: "apiKey", Value: fmt.Sprintf("ak_%016x", n)})
}

func benchmark(b *testing.B, s ratelimit.Store, l algorithm.Limits, keys int) {
	buckets := make([]ratelimit.Bucket, keys)
	var results []ratelimit.Result
	for i := range buckets {
		buckets[i] = ratelimit.Bucket{Key: keyOf(i), Limits: l, Op: ratelimit.Take, Cost: 1}
		results = s.Acquire(context.Background(), buckets[i:i+1], results)
	}
	b.ReportAllocs()
	next := 0
	for b.Loop() {
		results = s.Acquire(context.Background(), buckets[next:next+1], results)
		if next++; next == keys {
			next = 0
		}
	}
}

func TestAllocatesNothing(t *testing.T) {
	c := rejectcache.New(rejectcache.Options{Store: memorybackend.New(memorybackend.Options{}), Entries: 16})
	drained, full := take("drained", slow), take("full", algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 1e12})
	force := full
	force.Op = ratelimit.Force
	results := make([]ratelimit.Result, 0, 3)
	for range 4 {
		c.Acquire(t.Context(), []ratelimit.Bucket{drained}, nil)
	}
	for _, tt := range []struct {
		name    string
		buckets []ratelimit.Bucket
		pooled  bool // uses a pool, which the race detector empties at random
	}{
		{"denied", []ratelimit.Bucket{drained}, false},
		{"admitted", []ratelimit.Bucket{full}, false},
		{"denied beside others", []ratelimit.Bucket{full, drained}, false},
		{"forced beside a denied one", []ratelimit.Bucket{force, drained}, true},
	} {
		n := testing.AllocsPerRun(1000, func() { results = c.Acquire(context.Background(), tt.buckets, results) })
		if tt.pooled {
			require.LessOrEqual(t, n, 1.0, tt.name)
			continue
		}
		require.Zero(t, n, tt.name)
	}
}
