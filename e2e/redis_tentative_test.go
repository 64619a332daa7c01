package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
)

// scarce has buckets of which little comes back, in a slot of the tenant's, and others in one of the address's.
const scarce = `
domain: edge
policies:
  - {id: tokens, key: [tenant], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}
  - {id: log, key: [tenant], algorithm: sliding-log, limit: 1, window: 24h, onStoreFailure: closed}
  - {id: refilled, key: [tenant], algorithm: token-bucket, capacity: 10, refillPerSecond: 1, onStoreFailure: closed}
  - {id: ample, key: [ip], algorithm: token-bucket, capacity: 1000000, refillPerDay: 1000000, onStoreFailure: closed}
  - {id: drained, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}
`

// TestWhatIsGivenBackIsNotMissed: many callers on other instances take the last of a bucket all the time, and have to give it back, since their
// other bucket is drained. Whoever is denied for want of it is told to wait for a second at most, not for a day, and is not denied for it longer
// than that.
func TestWhatIsGivenBackIsNotMissed(t *testing.T) {
	cluster := useCluster(t, scarce)
	for _, id := range []string{"tokens", "log"} {
		t.Run(id, func(t *testing.T) {
			last := takeOf(t, scarce, id, policy.Part{Name: "tenant", Value: "acme"})
			stop := holdLast(t, cluster.URLs(), last)
			s := openStore(t, cluster.URLs())
			defer s.Close()
			cache := rejectcache.New(rejectcache.Options{Store: s})
			look := last
			look.Op, look.Cost = ratelimit.Peek, 1
			tentative, final, r := 0, 0, ratelimit.Result{}
			for end := time.Now().Add(patience); tentative < 20 && time.Now().Before(end); {
				switch r = cache.Acquire(t.Context(), []ratelimit.Bucket{look}, nil)[0]; {
				case r.Outcome != ratelimit.Denied:
				case r.Tentative:
					require.LessOrEqual(t, r.Wait, time.Second)
					if r.Source == ratelimit.FromStore {
						tentative++
					}
				case r.Source == ratelimit.FromStore:
					final++ // what was taken came back later than in a second
				}
			}
			stop()
			t.Logf("%d tentative denials, %d others; %+v", tentative, final, cache.Stats())
			require.Greater(t, tentative, final)
			if long() {
				require.Greater(t, tentative, 10*final)
			}
			require.Eventually(t, func() bool { // whoever was denied was told to wait for a second at most
				return cache.Acquire(t.Context(), []ratelimit.Bucket{last}, nil)[0].Outcome == ratelimit.Admitted
			}, 5*time.Second, 10*time.Millisecond)
			for _, source := range []ratelimit.Source{ratelimit.FromStore, ratelimit.FromCache} {
				r = cache.Acquire(t.Context(), []ratelimit.Bucket{last}, nil)[0]
				require.Equal(t, ratelimit.Denied, r.Outcome)
				require.Equal(t, source.String(), r.Source.String(), "that it is taken now is remembered")
				require.False(t, r.Tentative)
				require.Greater(t, r.Wait, 23*time.Hour)
			}
		})
	}
}

func takeOf(t *testing.T, policies, id string, part policy.Part) ratelimit.Bucket {
	t.Helper()
	return ratelimit.Bucket{Key: policy.NewKey(part, id), Limits: limitsOf(t, policies, id), Op: ratelimit.Take, Cost: 1}
}

// holdLast has callers on two instances without a cache take last together with what is drained, until stop is called.
func holdLast(t *testing.T, urls []string, last ratelimit.Bucket) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for instance := range 2 {
		s := openStore(t, urls)
		t.Cleanup(s.Close)
		for caller := range 10 {
			drained := takeOf(t, scarce, "drained", policy.Part{Name: "ip", Value: fmt.Sprintf("192.0.%d.%d", instance, caller)})
			require.NoError(t, s.Acquire(ctx, []ratelimit.Bucket{drained}, nil)[0].Err)
			callers.Go(func() {
				for ctx.Err() == nil {
					s.Acquire(context.Background(), []ratelimit.Bucket{drained, last}, nil)
				}
			})
		}
	}
	return func() {
		cancel()
		callers.Wait()
	}
}

// TestATentativeDenialSparesRedisTheNextCalls: where requests go over two slots, a drained bucket that refills once a second has a take that may
// be undone nearly all the time. Whoever goes on calling still costs Redis next to nothing.
func TestATentativeDenialSparesRedisTheNextCalls(t *testing.T) {
	cluster := useCluster(t, scarce)
	var cache *rejectcache.Cache
	var calls, decisions atomic.Int64
	s, err := redisbackend.New(redisbackend.Options{
		URLs: cluster.URLs(), Timeout: patience,
		OnCall: func(*redisbackend.Call) { calls.Add(1) },
		OnUndo: func(buckets []ratelimit.Bucket) {
			for _, b := range buckets {
				cache.Forget(b.Key, 0)
			}
		},
	})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	defer s.Close()
	cache = rejectcache.New(rejectcache.Options{Store: s})
	request := []ratelimit.Bucket{
		takeOf(t, scarce, "refilled", policy.Part{Name: "tenant", Value: "acme"}), takeOf(t, scarce, "ample", policy.Part{Name: "ip", Value: "192.0.2.1"}),
	}
	var callers sync.WaitGroup
	end := time.Now().Add(2 * time.Second)
	for range 8 {
		callers.Go(func() {
			for time.Now().Before(end) {
				cache.Acquire(context.Background(), request, nil)
				decisions.Add(1)
			}
		})
	}
	callers.Wait()
	t.Logf("%d decisions, %d calls", decisions.Load(), calls.Load())
	require.Less(t, float64(calls.Load()), 0.1*float64(decisions.Load()))
}
