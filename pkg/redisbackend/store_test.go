package redisbackend_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// patient is for tests that are not about time: the machine may be busy.
const patient = 10 * time.Second

// open starts a store that ends with the test.
func open(t testing.TB, o redisbackend.Options) *redisbackend.Store {
	t.Helper()
	s, err := redisbackend.New(o)
	require.NoError(t, err)
	require.NoError(t, s.Start(context.Background()))
	t.Cleanup(s.Close)
	return s
}

func TestConformance(t *testing.T) {
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: patient})
	storetest.Run(t, func(*testing.T) storetest.Harness {
		return storetest.Harness{Store: sinceNow(s), AcrossTags: true, ReportsAt: true}
	})
}

// shifted tells the time of decisions by another origin than the server, 1970: the suite's model counts what has refilled since the origin,
// which must fit into 64 bits.
type shifted struct {
	ratelimit.Store
	origin int64
}

func sinceNow(s ratelimit.Store) shifted { return shifted{s, time.Now().Add(-time.Hour).UnixMicro()} }

func (s shifted) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	buckets = slices.Clone(buckets)
	for i := range buckets {
		if buckets[i].Op == ratelimit.Undo {
			buckets[i].At += s.origin
		}
	}
	results = s.Store.Acquire(ctx, buckets, results)
	for i := range results {
		results[i].At -= s.origin
	}
	return results
}
