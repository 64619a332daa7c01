package redisbackend_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// shared is the cluster of the package's tests: 4 primaries, a replica each. Tests that stop a node have it wait, by nodeTimeout.
var shared redistest.Shared

// tests stops the servers when they have run, before somebody looks for what they left behind.
type tests struct{ *testing.M }

func (m tests) Run() int {
	redisbackend.Quiet()
	stop, err := serveExamples()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer stop()
	code := m.M.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// serveExamples starts the Redis that redisURL names. An example cannot skip itself: where there is no Redis, all are skipped, unless
// Redis is needed.
func serveExamples() (stop func(), err error) {
	if _, err := redistest.Find(); err != nil && os.Getenv(redistest.NeedEnv) == "" {
		flag.Parse()
		return func() {}, flag.Set("test.skip", "^Example")
	}
	dir, err := os.MkdirTemp("", "redisbackend")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := redistest.NewStandalone(ctx, redistest.Options{Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("start redis: %w", err)
	}
	redisURL = server.URL()
	return func() {
		server.Kill()
		_ = os.RemoveAll(dir)
	}, nil
}
