package doctest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(projectRoot, path))
	require.NoError(t, err)
	return string(text)
}

// section gives the part of a Markdown file below one heading.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	require.True(t, found, "no heading %q", heading)
	part, _, _ := strings.Cut(rest, "\n## ")
	return part
}

// listed gives the words in backquotes of a section's tables' first columns, sorted, each once.
func listed(text string, pattern *regexp.Regexp) []string {
	var words []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		first, _, _ := strings.Cut(line[2:], " |")
		words = append(words, pattern.FindAllString(first, -1)...)
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// Every flag of serve is in the reference, and nothing else is.
func TestReferenceHasEveryFlag(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), filepath.Join(binaries, "envoy-rls"), "serve", "--help").CombinedOutput()
	require.NoError(t, err)
	pattern := regexp.MustCompile(`--[a-z][a-z-]+`)
	var flags []string
	for line := range strings.Lines(string(out)) {
		if flag := pattern.FindString(line); flag != "" && flag != "--help" && strings.HasPrefix(strings.TrimSpace(line), "-") {
			flags = append(flags, flag)
		}
	}
	slices.Sort(flags)
	require.NotEmpty(t, flags, "no flags found in\n%s", out)
	require.Equal(t, slices.Compact(flags), listed(section(t, readFile(t, "docs/command-line.md"), "Flags of serve"), pattern))
}

// Every direct dependency of every module has its line among the decisions.
func TestDependenciesHaveAReason(t *testing.T) {
	reasons := readFile(t, "docs/adr/0004-dependencies.md")
	requirement := regexp.MustCompile(`(?m)^\s*(?:require )?([a-z0-9.-]+\.[a-z]+/\S+) v\S+$`) // no "// indirect" behind it
	files := []string{filepath.Join(projectRoot, "go.mod")}
	for _, pattern := range []string{"*/go.mod", "examples/*/go.mod"} {
		found, err := filepath.Glob(filepath.Join(projectRoot, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, found, "found no module at %s", pattern)
		files = append(files, found...)
	}
	for _, path := range files {
		file, err := filepath.Rel(projectRoot, path)
		require.NoError(t, err)
		found := requirement.FindAllStringSubmatch(readFile(t, file), -1)
		require.NotEmpty(t, found, file)
		for _, match := range found {
			if match[1] != "github.com/envoy-rls/envoy-rls" {
				require.Contains(t, reasons, "| "+match[1]+" |", file)
			}
		}
	}
}

// Every metric that another document names is in the reference.
func TestDocumentsNameKnownMetrics(t *testing.T) {
	name := regexp.MustCompile(`envoy_rls_\w+`)
	documented := listed(readFile(t, "docs/metrics.md"), name)
	require.Contains(t, readFile(t, "docs/operations.md"), "envoy_rls_", "alerts without metrics")
	paths, err := documents(projectRoot)
	require.NoError(t, err)
	for _, path := range append(paths, "config/policies.yaml") {
		for _, found := range name.FindAllString(readFile(t, path), -1) {
			require.Contains(t, documented, strings.TrimSuffix(found, "_bucket"), path)
		}
	}
}

// Every decision is in the index.
func TestIndexHasEveryDecision(t *testing.T) {
	index := readFile(t, "docs/adr/README.md")
	paths, err := filepath.Glob(filepath.Join(projectRoot, "docs/adr/0*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		require.Contains(t, index, "("+filepath.Base(path)+")")
	}
}

// Every package of the root module is on the map.
func TestMapHasEveryPackage(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "./...")
	list.Dir = projectRoot
	out, err := list.Output()
	require.NoError(t, err)
	architecture := readFile(t, "ARCHITECTURE.md")
	for _, path := range strings.Fields(string(out)) {
		require.Contains(t, architecture, "`"+strings.TrimPrefix(path, "github.com/envoy-rls/envoy-rls/")+"`")
	}
}
