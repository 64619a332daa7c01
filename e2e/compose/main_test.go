//go:build linux

package compose_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/e2e/compose"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// envoyBinary is the real Envoy. TestMain sets it before any test runs.
var envoyBinary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if os.Getenv(orphanEnv) != "" {
		return orphan()
	}
	var err error
	if envoyBinary, err = harness.Output("../../scripts/install-envoy.sh"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// patience bounds every wait for something that has to happen.
const patience = 2 * time.Minute

// long tells whether the long forms of tests are asked for.
func long() bool { return os.Getenv("ENVOY_RLS_LONG") == "1" }

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
}

// projectRoot is where docker-compose.yml is.
func projectRoot(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	return root
}

// shipped reads docker-compose.yml after some of its text was replaced: old, new, old, new … Each old one has to be there once.
func shipped(t *testing.T, replacements ...string) *types.Project {
	t.Helper()
	root := projectRoot(t)
	text, err := os.ReadFile(filepath.Join(root, "docker-compose.yml"))
	require.NoError(t, err)
	for i := 0; i < len(replacements); i += 2 {
		require.Equal(t, 1, strings.Count(string(text), replacements[i]), "%q in docker-compose.yml", replacements[i])
		text = []byte(strings.Replace(string(text), replacements[i], replacements[i+1], 1))
	}
	copied := filepath.Join(t.TempDir(), "docker-compose.yml")
	require.NoError(t, os.WriteFile(copied, text, 0o600))
	// A machine that is busy with tests gets more time for each decision than a demo.
	p, err := compose.Load(t.Context(), copied, root, []string{"ENVOY_RLS_STORE_TIMEOUT=500ms"})
	require.NoError(t, err)
	return p
}

// patientEnvoy gives Envoy 5 s for each question instead of 20 ms.
func patientEnvoy(t *testing.T, p *types.Project) {
	t.Helper()
	config, err := os.ReadFile(composeConfig)
	require.NoError(t, err)
	changed := strings.ReplaceAll(string(config), "0.020s", "5s")
	require.Equal(t, 4, strings.Count(changed, "5s")-strings.Count(string(config), "5s"))
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "compose.yaml"), []byte(changed), 0o644)) //nolint:gosec // a container reads it
	mountInstead(t, p, "envoy", "/etc/envoy", dir)
}

// addPolicy adds to the policies one whose keys are on all shards; those of the shipped ones that a test could use are on one or two.
func addPolicy(t *testing.T, p *types.Project) {
	t.Helper()
	text, err := os.ReadFile("../../config/policies.yaml")
	require.NoError(t, err)
	text = append(text, `
  - id: spread
    match: { route: "GET /spread" }
    key: [apiKey]
    algorithm: token-bucket
    capacity: 1000
    refillPerMinute: 1000
    onStoreFailure: local
`...)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policies.yaml"), text, 0o644)) //nolint:gosec // a container reads it
	mountInstead(t, p, "policies", "/etc/envoy-rls", dir)
}

// mountInstead mounts a directory where the file mounts another.
func mountInstead(t *testing.T, p *types.Project, service, target, dir string) {
	t.Helper()
	for i, v := range p.Services[service].Volumes {
		if v.Target == target {
			p.Services[service].Volumes[i].Source = dir
			return
		}
	}
	t.Fatalf("service %s has nothing mounted at %s", service, target)
}

// start starts a project, or only some of its services, until the end of the test.
func start(t *testing.T, p *types.Project, services ...string) *compose.Demo {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	d, err := compose.Start(ctx, p, compose.Options{Services: services, Envoy: envoyBinary, Dir: t.TempDir()})
	require.NoError(t, err)
	t.Cleanup(d.Stop)
	t.Logf("started after %v", time.Since(began).Round(time.Millisecond))
	return d
}

// until calls check until it succeeds.
func until(t *testing.T, what string, check func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	require.NoError(t, harness.Until(ctx, what, check))
	t.Logf("%s: after %v", what, time.Since(began).Round(time.Millisecond))
}
