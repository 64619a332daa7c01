package doctest

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// onlyLong skips what installs a program and takes its time, unless the long forms of tests are asked for.
func onlyLong(t *testing.T) {
	t.Helper()
	if os.Getenv("ENVOY_RLS_LONG") != "1" {
		t.Skip("set ENVOY_RLS_LONG=1 for this one")
	}
}

// Every document has its place on the site. The decisions get theirs by themselves.
func TestSiteHasEveryDocument(t *testing.T) {
	nav := readFile(t, "mkdocs.yml")
	paths, err := filepath.Glob(filepath.Join(projectRoot, "docs/*.md"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	for _, path := range paths {
		require.Contains(t, nav, "\n      - "+filepath.Base(path)+"\n", "the nav of mkdocs.yml lacks it")
	}
}

// buildSite builds the site of a project and gives where it is, or what mkdocs says.
func buildSite(t *testing.T, project string) (string, error) {
	t.Helper()
	project, err := filepath.Abs(project)
	require.NoError(t, err)
	site := t.TempDir()
	cmd := exec.CommandContext(t.Context(), filepath.Join(projectRoot, "scripts/site.sh"), site, project)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), err
	}
	return site, nil
}

// loaded finds what a page loads from elsewhere: a link that a reader may follow is none.
var loaded = regexp.MustCompile(`<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)="?(?:https?:)?//[^>]*>`)

func TestSite(t *testing.T) {
	onlyLong(t)
	site, err := buildSite(t, projectRoot)
	require.NoError(t, err, site)
	pages := 0
	err = fs.WalkDir(os.DirFS(site), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".html") {
			return err
		}
		pages++
		text, err := os.ReadFile(filepath.Join(site, path))
		require.Empty(t, loaded.FindString(string(text)), "%s loads something from elsewhere", path)
		require.NotContains(t, string(text), "<p>```", "%s has a block of code that is not one", path)
		return err
	})
	require.NoError(t, err)
	documents, err := documents(projectRoot)
	require.NoError(t, err)
	require.Greater(t, pages, len(documents)-5)
	for _, page := range []string{"index.html", "architecture.html", "adr/index.html", "operations.html"} {
		require.FileExists(t, filepath.Join(site, page))
	}
}

// Whatever is wrong with a document stops the build.
func TestSiteFindsFaults(t *testing.T) {
	onlyLong(t)
	faults := []struct{ file, text, want string }{
		{"docs/envoy.md", "\n[there](nowhere.md)\n", "'nowhere.md'"},
		{"docs/envoy.md", "\n[there](../config/nothing.yaml)\n", "config/nothing.yaml"},
		{"docs/redis.md", "\n[there](policies.md#nothing-of-the-kind)\n", "#nothing-of-the-kind"},
		{"README.md", "\n[there](docs/lost.page)\n", "docs/lost.page"},
		{"docs/new.md", "# A document that is not on the site\n", "new.md"},
	}
	project := siteTree(t)
	for _, fault := range faults {
		file, err := os.OpenFile(filepath.Join(project, fault.file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		require.NoError(t, err)
		_, err = file.WriteString(fault.text)
		require.NoError(t, err)
		require.NoError(t, file.Close())
	}
	out, err := buildSite(t, project)
	require.Error(t, err)
	for _, fault := range faults {
		require.Contains(t, out, fault.want)
	}
	require.Contains(t, out, "Aborted with 5 warnings", "each of them counts")
}

// siteTree is the project, with documents that a test may change.
func siteTree(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs(projectRoot)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(dir, "docs"), os.DirFS(filepath.Join(root, "docs"))))
	for _, name := range []string{"README.md", "mkdocs.yml"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(readFile(t, name)), 0o600))
	}
	entries, err := os.ReadDir(root)
	require.NoError(t, err)
	for _, entry := range entries {
		if _, err := os.Lstat(filepath.Join(dir, entry.Name())); err == nil {
			continue
		}
		require.NoError(t, os.Symlink(filepath.Join(root, entry.Name()), filepath.Join(dir, entry.Name())))
	}
	return dir
}
