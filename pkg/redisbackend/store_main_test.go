package redisbackend_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(tests{m}) }

// shared is the cluster of the package's tests: 4 primaries, a replica each. Tests that stop a node have it wait, by nodeTimeout.
var shared redistest.Shared

// tests stops the cluster when they have run, before somebody looks for what they left behind.
type tests struct{ *testing.M }

func (m tests) Run() int {
	redisbackend.Quiet()
	code := m.M.Run()
	if err := shared.Close(); err != nil {
		_, _ = os.Stderr.WriteString(err.Error() + "\n")
		return 1
	}
	return code
}
