package memorybackend_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestAllOrNone(t *testing.T) {
	now := int64(0)
	s := memorybackend.New(memorybackend.Options{Now: func() int64 { return now }})
	user := ratelimit.Bucket{Key: keyOf(1), Limits: algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 2, Rate: 1e-9}, Cost: 1, Op: ratelimit.Take}
	site := ratelimit.Bucket{Key: keyOf(2), Limits: algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 1000, Window: 60e6}, Cost: 1, Op: ratelimit.Take}
	admitted := 0
	var r []ratelimit.Result
	for range 500 {
		r = s.Acquire(context.Background(), []ratelimit.Bucket{user, site}, r)
		if r[0].Outcome == ratelimit.Admitted {
			admitted++
		}
	}
	require.Equal(t, 2, admitted)
	require.Equal(t, ratelimit.Admitted, r[1].Outcome)
	require.Equal(t, 998.0, r[1].Remaining)
	require.Equal(t, 2, s.Stats().Buckets)
}
