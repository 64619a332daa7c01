//go:build linux

package compose_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/compose"
)

func TestDockerfile(t *testing.T) {
	faults, err := compose.LintDockerfile("../../Dockerfile")
	require.NoError(t, err)
	require.Empty(t, faults)
}

// TestDockerfileFaults plants faults in the project's Dockerfile.
func TestDockerfileFaults(t *testing.T) {
	text, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	for name, tt := range map[string]struct{ old, new, want string }{
		"root":                {"USER 65532:65532\nEXPOSE", "EXPOSE", "runs as root"},
		"root by number":      {"USER 65532:65532\nEXPOSE", "USER 0:0\nEXPOSE", "runs as root"},
		"root in the target":  {"USER 65532:65532\nENTRYPOINT [\"/upstream\"]", "ENTRYPOINT [\"/upstream\"]", "stage 1 upstream: runs as root"},
		"no such stage":       {"COPY --from=build /out/upstream", "COPY --from=builder /out/upstream", "there is no stage builder"},
		"a later stage":       {"COPY --from=build /out/upstream", "COPY --from=2 /out/upstream", "there is no stage 2"},
		"no version":          {"golang:1.26-bookworm", "golang", "FROM golang: no version is pinned"},
		"latest":              {"golang:1.26-bookworm", "golang:latest", "no version is pinned"},
		"a download":          {"COPY . .", "ADD https://example.com/x /x\nCOPY . .", "use COPY"},
		"a shell as the main": {"ENTRYPOINT [\"/upstream\"]", "ENTRYPOINT /upstream", "use the JSON form"},
		"casing":              {"AS upstream", "as upstream", "FromAsCasing"},
		"a maintainer":        {"EXPOSE 8080", "MAINTAINER somebody\nEXPOSE 8080", "MaintainerDeprecated"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, 1, strings.Count(string(text), tt.old), "%q in the Dockerfile", tt.old)
			path := filepath.Join(t.TempDir(), "Dockerfile")
			require.NoError(t, os.WriteFile(path, []byte(strings.Replace(string(text), tt.old, tt.new, 1)), 0o600))
			faults, err := compose.LintDockerfile(path)
			require.NoError(t, err)
			require.Contains(t, strings.Join(faults, "\n"), tt.want)
		})
	}

	path := filepath.Join(t.TempDir(), "Dockerfile")
	require.NoError(t, os.WriteFile(path, []byte("FROM scratch\nCOPPY a b\n"), 0o600))
	_, err = compose.LintDockerfile(path)
	require.ErrorContains(t, err, "unknown instruction: COPPY")
}
