package policy_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

var update = flag.Bool("update", false, "write the golden files of testdata/faults anew")

// What people read when a file is refused. After a change: go test ./pkg/policy -run TestFaultsGolden -update
func TestFaultsGolden(t *testing.T) {
	paths, err := filepath.Glob("testdata/faults/*.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) {
			_, err := policy.Load(path)
			require.Error(t, err)
			got := err.Error() + "\n"
			golden := strings.TrimSuffix(path, ".yaml") + ".golden"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(got), 0o600))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// The caret stands below the character that Pos names, behind tabs and wide lines too.
func TestFaultCaret(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"after a tab": {"policies: []\ndomain:\t[]\n", "a.yaml:2:9: domain is text, not a list\ndomain:\t[]\n       \t^"},
		"after accents": {
			"policies: []\nattributes: {é: [é]}\n",
			"a.yaml:2:17: attributes: \"é\" is text, not a list (write the attribute's name, or a template such as \"{method} {path}\")\n" +
				"attributes: {é: [é]}\n                ^",
		},
		"nothing there": {"policies:\n", "a.yaml:1:10: policies is a list, not nothing (write policies: [] if there are none)\npolicies:\n         ^"},
		"whole file":    {"", "a.yaml: the file is empty (a policy file has at least policies: [])"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := policy.Parse("a.yaml", []byte(tt.text))
			require.EqualError(t, err, tt.want)
		})
	}
}
