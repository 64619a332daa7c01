package redistest

import (
	"context"
	"os"
	"testing"
	"time"
)

// startTimeout bounds a start. It takes about 2.5 s for a cluster, more on a machine that is busy with other tests.
const startTimeout = time.Minute

// NeedEnv is the environment variable that makes a missing redis-server a failure instead of a skipped test.
const NeedEnv = "ENVOY_RLS_NEED_REDIS"

// StartStandalone starts one server that ends with the test. At most one Options may be given.
func StartStandalone(t testing.TB, o ...Options) *Server {
	t.Helper()
	var options Options
	if len(o) > 0 {
		options = o[0]
	}
	s := start(t, options, NewStandalone)
	t.Cleanup(s.Kill)
	return s
}

// StartCluster starts a cluster that ends with the test.
func StartCluster(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := start(t, o, NewCluster)
	t.Cleanup(c.Close)
	return c
}

// StartSentinel starts a primary and a replica watched by sentinels. They end with the test.
func StartSentinel(t testing.TB, o Options) *Sentinel {
	t.Helper()
	s := start(t, o, NewSentinel)
	t.Cleanup(s.Close)
	return s
}

// need skips the test if there is no Redis.
func need(t testing.TB) {
	t.Helper()
	if _, err := Find(); err != nil {
		if os.Getenv(NeedEnv) != "" {
			t.Fatalf("%s is set: %v", NeedEnv, err)
		}
		t.Skip(err)
	}
}

// start starts something. The directory outlives the servers: its removal was registered first.
func start[T any](t testing.TB, o Options, run func(context.Context, Options) (T, error)) T {
	t.Helper()
	need(t)
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	started, err := run(ctx, o)
	if err != nil {
		t.Fatalf("start redis: %v", err)
	}
	return started
}
