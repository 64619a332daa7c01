package fallback_test

import (
	"context"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// atOnce is a store that answers without delay, but for shard a if that is down.
type atOnce struct{ down bool }

func (s atOnce) Acquire(_ context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	results = results[:len(buckets)]
	for i := range buckets {
		results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore}
		if s.down && shardOfKey(buckets[i].Key.Bytes()) == "a" {
			results[i].Err = errGone
		}
	}
	return results
}

// BenchmarkAcquire is what a call costs on top of what it costs the store.
func BenchmarkAcquire(b *testing.B) {
	for _, tt := range []struct {
		name, key string
		down      bool
	}{
		{"all is well", "b-1", false},
		{"another shard is down", "b-1", true},
		{"the shard is down", "a-1", true},
	} {
		b.Run(tt.name, func(b *testing.B) {
			s := fallback.New(fallback.Options{Store: atOnce{tt.down}, Shard: shardOfKey})
			for range 3 {
				s.Acquire(context.Background(), []ratelimit.Bucket{take("a-1", tokens, policy.Open)}, make([]ratelimit.Result, 1))
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				buckets, results := []ratelimit.Bucket{take(tt.key, tokens, policy.Open)}, make([]ratelimit.Result, 1)
				for pb.Next() {
					results = s.Acquire(context.Background(), buckets, results)
				}
			})
		})
	}
}
