package redisbackend_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

const benchCallers = 64

// BenchmarkAcquire has 64 callers at once decide on random ones of 100,000 buckets. It reports the processor time of this process and of
// Redis for a call.
func BenchmarkAcquire(b *testing.B) {
	server := redistest.StartStandalone(b)
	for _, policies := range []int{1, 2} {
		b.Run(strconv.Itoa(policies)+" policies", func(b *testing.B) {
			s := open(b, redisbackend.Options{URLs: []string{server.URL()}, Timeout: time.Second})
			benchmark(b, s, policies, server)
		})
	}
}

// BenchmarkAcquireCluster is the same over four nodes.
func BenchmarkAcquireCluster(b *testing.B) {
	cluster := redistest.StartCluster(b, redistest.Options{ReplicasEach: -1})
	s := open(b, redisbackend.Options{URLs: cluster.URLs(), Timeout: time.Second})
	benchmark(b, s, 1, cluster.Nodes...)
}

func benchmark(b *testing.B, s ratelimit.Store, policies int, servers ...*redistest.Server) {
	keys := make([][]policy.Key, 100_000)
	for i := range keys {
		tag := policy.Part{Name: "tenant", Value: strconv.Itoa(i)}
		for p := range policies {
			keys[i] = append(keys[i], policy.NewKey(tag, "policy-"+strconv.Itoa(p), policy.Part{Name: "apiKey", Value: strconv.Itoa(i)}))
		}
	}
	var calls, failed atomic.Int64
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	own, redis := processorTime(b), serverTime(b, servers)
	for range benchCallers {
		wg.Go(func() {
			buckets := make([]ratelimit.Bucket, policies)
			var results []ratelimit.Result
			for calls.Add(1) <= int64(b.N) {
				for p, key := range keys[rand.IntN(len(keys))] {
					buckets[p] = ratelimit.Bucket{Key: key, Limits: storetest.TB(20, 100), Op: ratelimit.Take, Cost: 1}
				}
				if results = s.Acquire(context.Background(), buckets, results); results[0].Err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	require.Zero(b, failed.Load())
	b.ReportMetric(float64((processorTime(b)-own).Microseconds())/float64(b.N), "cpu-us/op")
	b.ReportMetric(float64((serverTime(b, servers)-redis).Microseconds())/float64(b.N), "redis-us/op")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func serverTime(b *testing.B, servers []*redistest.Server) (sum time.Duration) {
	for _, server := range servers {
		used, err := server.CPU(b.Context())
		require.NoError(b, err)
		sum += used
	}
	return sum
}
