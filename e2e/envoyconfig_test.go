package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

func TestEnvoyAcceptsTheShippedConfiguration(t *testing.T) {
	shipped, err := os.ReadFile("../envoy/envoy.yaml")
	require.NoError(t, err)
	rendered, err := harness.EnvoySettings{
		Listen: "127.0.0.1:1", Admin: "127.0.0.1:2", Upstream: "127.0.0.1:3", Services: []string{"127.0.0.1:4", "127.0.0.1:5"}, Timeout: time.Second,
	}.Render(string(shipped))
	require.NoError(t, err)

	for name, text := range map[string]string{"as shipped": string(shipped), "as the tests use it": rendered} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "envoy.yaml")
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			out, err := exec.Command(binaries.envoy, "--mode", "validate", "--config-path", path, "--disable-hot-restart").CombinedOutput()
			require.NoError(t, err, "%s", out)
			for line := range strings.Lines(string(out)) {
				require.NotContains(t, strings.ToLower(line), "deprecated", "the configuration uses what Envoy gives up")
			}
		})
	}
}

func TestRenderRefusesAConfigurationThatItDoesNotKnow(t *testing.T) {
	_, err := harness.EnvoySettings{Listen: "127.0.0.1:1"}.Render("static_resources: {}")
	require.ErrorContains(t, err, "0 times, want 1")
}

// TestEnvoyVersionsAgree holds the Envoy of docker-compose.yml against the one that the tests run.
func TestEnvoyVersionsAgree(t *testing.T) {
	out, err := exec.Command(binaries.envoy, "--version").Output()
	require.NoError(t, err)
	compose, err := os.ReadFile("../docker-compose.yml")
	require.NoError(t, err)
	image := regexp.MustCompile(`image: envoyproxy/envoy:v([0-9.]+)`).FindSubmatch(compose)
	require.NotNil(t, image)
	require.Contains(t, string(out), "/"+string(image[1])+"/")
}
