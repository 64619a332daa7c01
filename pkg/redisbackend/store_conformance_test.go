package redisbackend_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

func TestConformance(t *testing.T) {
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: patient})
	storetest.Run(t, func(*testing.T) storetest.Harness {
		return storetest.Harness{Store: s, AcrossTags: true, ReportsAt: true}
	})
}

// TestConformanceByATestClock is all of the suite, with what is about time: the script takes it from a key.
func TestConformanceByATestClock(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t)
	c := redis.NewClient(&redis.Options{Addr: server.Addr(), DisableIdentity: true})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	pass := func(d time.Duration) {
		if err := c.IncrBy(context.Background(), redisbackend.TestClock, d.Microseconds()).Err(); err != nil {
			panic(err)
		}
	}
	pass(time.Duration(time.Now().UnixNano()))
	s, err := redisbackend.NewUnderTestClock(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: patient})
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(s.Close)
	storetest.Run(t, func(*testing.T) storetest.Harness {
		return storetest.Harness{
			Store: s, Advance: pass, StepBack: func(d time.Duration) { pass(-d) }, AcrossTags: true, ReportsAt: true,
		}
	})
}

// TestConformanceOfACluster runs the suite on a cluster while things happen to it. Calls may fail then, if they say that they were not carried
// out; everything that is answered must be right.
func TestConformanceOfACluster(t *testing.T) {
	cluster := shared.Cluster(t)
	nodeTimeout(t, cluster, troubledTimeout)
	for _, test := range []struct {
		name    string
		trouble func(*trouble, context.Context) error // once
		forgets bool                                  // what was to be given back
	}{
		{name: "nothing happens"},
		{name: "scripts are flushed", trouble: (*trouble).flush},
		{name: "slots move", trouble: (*trouble).move},
		{name: "replicas take over", trouble: (*trouble).failover},
		{name: "memory runs out", trouble: (*trouble).fill, forgets: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &trouble{Store: open(t, redisbackend.Options{URLs: cluster.URLs(), Timeout: patient}), cluster: cluster}
			if test.trouble != nil {
				s.begin(t, test.trouble)
			}
			storetest.Run(t, func(*testing.T) storetest.Harness {
				return storetest.Harness{Store: s, ReportsAt: true, LosesUndos: test.forgets}
			})
			if test.trouble == nil {
				require.Zero(t, s.failed.Load())
			}
		})
	}
}
