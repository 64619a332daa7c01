package doctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

const projectRoot = "../.."

// binaries is the folder of the built envoy-rls.
var binaries string

func TestMain(m *testing.M) { os.Exit(run(m)) }

// run builds the binary that the documents talk about, then runs the tests.
func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "doctest")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "envoy-rls"), "./cmd/envoy-rls")
	build.Dir, build.Stdout, build.Stderr = projectRoot, os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	binaries = dir
	return m.Run()
}

func newChecker(t *testing.T) *checker {
	t.Helper()
	root, err := filepath.Abs(projectRoot)
	require.NoError(t, err)
	box, err := newSandbox(root, t.TempDir(), binaries)
	require.NoError(t, err)
	c := &checker{root: root, scratch: t.TempDir(), envoy: findEnvoy(t, root), box: box, counts: map[string]int{}}
	c.startDemo = func() *sandbox { return startDemo(t, c) }
	c.startPostgres = func() *postgres { return startPostgres(t, c) }
	return c
}

// findEnvoy gives the path of the Envoy that scripts/install-envoy.sh installed, or nothing.
func findEnvoy(t *testing.T, root string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(root, ".tools", "envoy-*", "envoy", "_bin", "envoy"))
	require.NoError(t, err)
	if len(found) == 0 {
		return ""
	}
	return found[len(found)-1]
}

// missing ends a test for want of Envoy or PostgreSQL: skipped for who runs go test alone, a failure in `make test`.
func missing(t *testing.T) {
	t.Helper()
	const how = "no Envoy in .tools, or no PostgreSQL; run scripts/ci-deps.sh"
	if os.Getenv("ENVOY_RLS_NEED_ENVOY") != "" {
		t.Fatal(how)
	}
	t.Skip(how)
}

func TestDocuments(t *testing.T) {
	paths, err := documents(projectRoot)
	require.NoError(t, err)
	require.Contains(t, paths, "README.md")
	require.Contains(t, paths, "docs/envoy.md")
	counts := map[string]int{}
	for _, path := range paths {
		t.Run(path, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(projectRoot, path))
			require.NoError(t, err)
			c := newChecker(t)
			for _, fault := range c.check(t.Context(), path, string(text)) {
				t.Error(fault)
			}
			for lang, count := range c.counts {
				counts[lang] += count
			}
			if len(c.notChecked) > 0 {
				t.Log("not checked:", c.notChecked)
				missing(t)
			}
		})
	}
	for _, lang := range []string{"sh", "console", "yaml"} {
		require.NotZero(t, counts[lang], "no %s block found in any document: the search is broken", lang)
	}
}
