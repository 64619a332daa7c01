package e2e_test

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

var update = flag.Bool("update", false, "write testdata/golden anew")

// goldens are the answers whose header fields are kept byte for byte. The answer to the last of the calls is.
var goldens = []struct {
	name, path string
	calls      int
	status     int
}{
	{"allowed", "/free", 1, 200},
	{"allowed-last", "/free", 2, 200},
	{"denied", "/free", 3, 429},
	{"log-allowed", "/log", 1, 200},
	{"log-denied", "/log", 3, 429},
	{"sustained", "/sustained", 1, 200},
	{"two-policies", "/two", 1, 200},
	{"two-policies-denied", "/two", 2, 429},
	{"odd-name", "/odd", 1, 200},
	{"huge", "/huge", 1, 200},
}

// TestFieldsAreGolden compares the RateLimit fields that a client of the real Envoy receives with those of testdata/golden, byte for byte.
func TestFieldsAreGolden(t *testing.T) {
	lab := newLab(t, setup{policies: "testdata/golden/policies.yaml"})
	for _, g := range goldens {
		t.Run(g.name, func(t *testing.T) {
			got := capture(t, lab, g.name, g.path, g.calls, g.status)
			file := filepath.Join("testdata/golden", g.name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644)) //nolint:gosec // a file of the repository
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), got)
		})
	}
}

// capture makes the calls and returns the fields of the last answer, as received. Their times are in whole seconds, rounded up, so they are the
// same as long as the calls take less than one: if they do not, it tries again with another key.
func capture(t *testing.T, lab *harness.Lab, name, path string, calls, status int) string {
	t.Helper()
	for try := range 20 {
		r := harness.Request{Method: "GET", Target: path, Header: []string{fmt.Sprintf("x-api-key: %s-%d", name, try)}}
		client := harness.Client{Addr: lab.Options.Listen}
		begin := time.Now()
		var last *harness.Response
		for range calls {
			var err error
			last, err = client.Do(t.Context(), r)
			require.NoError(t, err)
		}
		took := time.Since(begin)
		client.Close()
		require.Equal(t, status, last.Status)
		if took < 900*time.Millisecond {
			return fields(last)
		}
	}
	t.Fatal("a few calls never took less than a second")
	return ""
}

func fields(r *harness.Response) string {
	var b strings.Builder
	for _, name := range []string{"RateLimit-Policy", "RateLimit", "Retry-After"} {
		for _, line := range r.Field(name) {
			b.WriteString(line + "\n")
		}
	}
	return b.String()
}

// TestFieldsParseElsewhere has parsers of other projects read the golden fields: all must find the same in them.
func TestFieldsParseElsewhere(t *testing.T) {
	dir, err := harness.Output("../scripts/install-checkers.sh")
	require.NoError(t, err)
	python := os.Getenv("PYTHON")
	if python == "" {
		python = "python3"
	}
	var files []string
	for _, g := range goldens {
		files = append(files, filepath.Join("testdata/golden", g.name+".golden"))
	}
	for checker, argv := range map[string][]string{
		"retryheader":        {python, "testdata/checkers/check_retryheader.py"},
		"http-sf":            {python, "testdata/checkers/check_http_sf.py"},
		"structured-headers": {"node", "testdata/checkers/check_structured_headers.mjs", dir},
	} {
		t.Run(checker, func(t *testing.T) {
			cmd := exec.Command(argv[0], append(argv[1:], files...)...)
			cmd.Env = append(os.Environ(), "PYTHONPATH="+filepath.Join(dir, "python"), "PYTHONDONTWRITEBYTECODE=1")
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			require.NoError(t, err)
			got := strings.Split(strings.TrimSpace(string(out)), "\n")
			require.Len(t, got, len(goldens))
			for i, g := range goldens {
				want, err := os.ReadFile(filepath.Join("testdata/golden", g.name+".json"))
				require.NoError(t, err)
				require.JSONEq(t, string(want), got[i], g.name)
			}
		})
	}
}
