package redislimit_test

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

// redisURL is where the examples' Redis is.
var redisURL string

type tests struct{ *testing.M }

// Run starts the Redis of the examples, which cannot skip themselves: where there is none, all are skipped, unless Redis is needed.
func (m tests) Run() int {
	redisbackend.Quiet()
	if _, err := redistest.Find(); err != nil && os.Getenv(redistest.NeedEnv) == "" {
		flag.Parse()
		_ = flag.Set("test.skip", "^Example")
		return m.M.Run()
	}
	dir, err := os.MkdirTemp("", "redislimit")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := redistest.NewStandalone(ctx, redistest.Options{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, "start redis:", err)
		return 1
	}
	defer server.Kill()
	redisURL = server.URL()
	return m.M.Run()
}
