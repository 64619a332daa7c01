package redislimit

import (
	"context"
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const (
	warmFor    = 500 * time.Millisecond
	warmPause  = 10 * time.Millisecond
	warmProbes = 64 // slots, so that a cluster's every primary has some of them, almost surely
)

// warm looks at buckets that nobody has until all nodes have answered, so that the first decisions find connections. It writes nothing. The
// error says why Redis does not answer.
func (s *Store) warm(ctx context.Context) error {
	var probes []ratelimit.Bucket
	for n := range warmProbes {
		probes = append(probes, ratelimit.Bucket{
			Key:    policy.NewKey(policy.Part{Name: "probe", Value: strconv.Itoa(n)}, "probe"),
			Limits: algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 1, Rate: 1}, Op: ratelimit.Peek, Cost: 1,
		})
	}
	ctx, cancel := context.WithTimeout(ctx, warmFor)
	defer cancel()
	for {
		err := firstError(s.Redis.Acquire(ctx, probes, nil))
		if err == nil {
			return nil
		}
		pause := time.NewTimer(warmPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

func firstError(results []ratelimit.Result) error {
	for i := range results {
		if results[i].Err != nil {
			return results[i].Err
		}
	}
	return nil
}
