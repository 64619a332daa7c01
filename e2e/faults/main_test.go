package faults_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// service is the program under test. testMain sets it before any test runs.
var service string

// nodeTimeout is after which silence the nodes of the shared cluster give up another.
const nodeTimeout = time.Second

// shared is the cluster that scenarios use one after the other. Its clocks can be moved.
var shared = redistest.Shared{Options: redistest.Options{MovingClock: true, NodeTimeout: nodeTimeout, Config: []string{"repl-timeout 36000"}}}

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "envoy-rls-faults-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if service, err = harness.ServiceBinary("../..", dir); err != nil {
		return fail(err)
	}
	code := m.Run()
	if err := shared.Close(); err != nil {
		return fail(err)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			return fail(err)
		}
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "faults:", err)
	return 1
}

// patience bounds every wait for something that has to happen. A slow machine needs a part of it, a fault all of it.
const patience = time.Minute

// long tells whether the literal, long forms of tests are asked for.
func long() bool { return os.Getenv("ENVOY_RLS_LONG") == "1" }
