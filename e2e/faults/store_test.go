package faults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// openStore opens a store beside the service, to look at what that left, that ends with the test.
func openStore(t *testing.T, cluster *redistest.Cluster) *redisbackend.Store {
	t.Helper()
	redisbackend.Quiet()
	s, err := redisbackend.New(redisbackend.Options{URLs: cluster.URLs(), Timeout: patience})
	require.NoError(t, err)
	require.NoError(t, s.Start(context.Background()))
	t.Cleanup(s.Close)
	return s
}

// bucket is that of a tenant under a policy, for one call of cost 1.
func bucket(tenant, id string, l algorithm.Limits, op ratelimit.Op) ratelimit.Bucket {
	b := bucketOf("tenant", tenant, id, l)
	b.Op = op
	return b
}

func bucketOf(attribute, value, id string, l algorithm.Limits) ratelimit.Bucket {
	return ratelimit.Bucket{Key: policy.NewKey(policy.Part{Name: attribute, Value: value}, id), Limits: l, Cost: 1}
}

// acquire does one operation, which must succeed.
func acquire(t *testing.T, s *redisbackend.Store, b ratelimit.Bucket) ratelimit.Result {
	t.Helper()
	r := s.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)[0]
	require.NoError(t, r.Err)
	return r
}

// charged is what a bucket lacks of its capacity.
func charged(t *testing.T, s *redisbackend.Store, b ratelimit.Bucket) float64 {
	t.Helper()
	b.Op = ratelimit.Peek
	return b.Limits.Capacity - acquire(t, s, b).Remaining
}

func tokenBucket(capacity, perMinute float64) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: capacity, Rate: perMinute / 60e6}
}

func slidingLog(limit float64, window time.Duration) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: limit, Window: window.Microseconds()}
}

// ample are the limits of policies that deny nobody here.
func ample() algorithm.Limits { return tokenBucket(1_000_000, 300./(24*60)) }

// tenantOf finds a tenant whose buckets are on a shard.
func tenantOf(shard int, prefix string) string {
	for n := 0; ; n++ {
		if tenant := fmt.Sprint(prefix, n); shardOf(tenant) == shard {
			return tenant
		}
	}
}
