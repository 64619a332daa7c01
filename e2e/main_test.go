// Package e2e tests the whole thing from the outside: the service as a process, behind the real Envoy, with the configuration that the
// project ships. Most tests are the scripts in testdata/script; commands_test.go says what their commands do.
package e2e_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// binaries are the programs under test. TestMain sets them before any test runs.
var binaries struct{ envoy, service string }

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "envoy-rls-e2e-")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if binaries.envoy, err = harness.Output("../scripts/install-envoy.sh"); err != nil {
		return fail(err)
	}
	if binaries.service, err = harness.ServiceBinary("..", dir); err != nil {
		return fail(err)
	}
	code := m.Run()
	stopSharedCluster()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			return fail(err)
		}
	}
	return code
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "e2e:", err)
	return 1
}

// patience bounds every wait for something that has to happen. A slow machine needs a part of it, a fault all of it.
const patience = time.Minute

// setup says what a test's lab is like.
type setup struct {
	policies  string // a file
	instances int    // of the service; 0: 1
	// envoyTimeout is how long Envoy waits for the service; 0: so long that a busy machine makes calls late but leaves none to Envoy;
	// shippedTimeout: as configured.
	envoyTimeout time.Duration
	envoyConfig  string   // a file; empty: the one that is shipped
	args         []string // further flags of the service; the last of two counts
}

const shippedTimeout = time.Duration(-1)

// startLab starts a lab on free ports.
func startLab(ctx context.Context, dir string, s setup) (*harness.Lab, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return harness.StartAnywhere(ctx, s.options(dir))
}

func (s setup) options(dir string) harness.Options {
	o := harness.Options{
		EnvoyBinary:   binaries.envoy,
		EnvoyConfig:   "../envoy/envoy.yaml",
		ServiceBinary: binaries.service,
		ServiceArgs:   append([]string{"--drain-delay", "0s"}, s.args...),
		Policies:      s.policies,
		Dir:           dir,
		EnvoyTimeout:  s.envoyTimeout,
		Services:      make([]harness.ServiceAddress, max(1, s.instances)),
	}
	if s.envoyConfig != "" {
		o.EnvoyConfig = s.envoyConfig
	}
	switch s.envoyTimeout {
	case 0:
		o.EnvoyTimeout = patience / 4
	case shippedTimeout:
		o.EnvoyTimeout = 0
	}
	return o
}

// newLab starts a lab that ends with the test.
func newLab(t *testing.T, s setup) *harness.Lab {
	t.Helper()
	lab, err := startLab(t.Context(), t.TempDir(), s)
	require.NoError(t, err)
	t.Cleanup(lab.Stop)
	return lab
}

// portTaken tells from what a program said whether another one has taken its port.
func portTaken(text string) bool {
	return strings.Contains(strings.ToLower(text), "address already in use")
}

// writePolicies writes a policy file for one test.
func writePolicies(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
