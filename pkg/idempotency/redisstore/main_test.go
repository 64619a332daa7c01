package redisstore_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// shared is the cluster of the package's tests.
var shared redistest.Shared

func TestMain(m *testing.M) {
	if url := os.Getenv(doomedEnv); url != "" {
		if err := serveDoomed(url); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	goleak.VerifyTestMain(tests{m})
}

// tests stops the servers when they have run, before somebody looks for what they left behind.
type tests struct{ *testing.M }

func (m tests) Run() int {
	redisbackend.Quiet()
	code := m.M.Run()
	if err := shared.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
