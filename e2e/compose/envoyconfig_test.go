//go:build linux

package compose_test

import (
	"flag"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

var update = flag.Bool("update", false, "write envoy/compose.yaml anew")

const composeConfig = "../../envoy/compose.yaml"

// TestEnvoyConfigIsTheShippedOne: docker-compose.yml has Envoy read a copy of envoy.yaml in which nothing but the addresses differs.
func TestEnvoyConfigIsTheShippedOne(t *testing.T) {
	shipped, err := os.ReadFile("../../envoy/envoy.yaml")
	require.NoError(t, err)
	config, err := harness.EnvoySettings{
		Upstream: "upstream:9000", Services: []string{"envoy-rls-1:8081", "envoy-rls-2:8081"}, Names: true,
	}.Render(string(shipped))
	require.NoError(t, err)
	config = "# envoy.yaml with the addresses of docker-compose.yml. Do not edit: change envoy.yaml, then in e2e: go test ./compose -run EnvoyConfig -update\n\n" + config
	if *update {
		require.NoError(t, os.WriteFile(composeConfig, []byte(config), 0o644)) //nolint:gosec // containers have to read it
	}
	got, err := os.ReadFile(composeConfig)
	require.NoError(t, err)
	require.Equal(t, config, string(got), "run: go test ./compose -run EnvoyConfig -update")
}
