package archtest_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLayers fails with the reason where a file of the root module breaks the table.
func TestLayers(t *testing.T) {
	files := readModule(t)
	require.NotEmpty(t, files, "found no Go files: the walk is wrong")
	for _, file := range files {
		for _, reason := range broken(file) {
			t.Error(reason)
		}
	}
}

// TestTablesAgree fails where a table names a package that has no layer.
func TestTablesAgree(t *testing.T) {
	for pkg := range testSupport {
		require.Contains(t, layers, pkg)
	}
	for pkg := range stdlibOnly {
		require.Contains(t, layers, pkg)
	}
	for mod, users := range modules {
		for _, user := range users {
			if user != testOnly {
				require.Contains(t, layers, user, "user of %s", mod)
			}
		}
	}
}

// TestRootModuleStaysLight fails if go.mod requires, directly, a module that the table doesn't know: what e2e and bench
// need belongs in their own go.mod, where no user of the library meets it.
func TestRootModuleStaysLight(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	require.NoError(t, err)
	direct := directRequires(string(text))
	require.NotEmpty(t, direct, "found no requirements: the reader of go.mod is wrong")
	for _, mod := range direct {
		require.Contains(t, modules, mod, "go.mod requires a module that nobody decided on")
	}
}

func TestRulesCatch(t *testing.T) {
	const own = module + "/"
	tests := []struct {
		name string
		file source
		want string // part of the only reason; empty: no reason
	}{
		{"down", source{pkg: "pkg/policy", imports: []string{own + "pkg/algorithm", "fmt"}}, ""},
		{"up", source{pkg: "pkg/policy", imports: []string{own + "pkg/ratelimit"}}, "layer 1 must not know layer 2"},
		{"sideways", source{pkg: "pkg/descriptors", imports: []string{own + "pkg/rlheaders"}}, "both are in layer 3"},
		{"up in a test", source{pkg: "pkg/ratelimit", test: true, imports: []string{own + "pkg/memorybackend"}}, ""},
		{"unknown package", source{pkg: "pkg/utils"}, "has no layer"},
		{"import of an unknown package", source{pkg: "internal/app", imports: []string{own + "pkg/utils"}}, "has no layer"},
		{"suite in a library", source{pkg: "pkg/rls", imports: []string{own + "pkg/storetest"}}, "only test files"},
		{"suite in a test", source{pkg: "pkg/memorybackend", test: true, imports: []string{own + "pkg/storetest"}}, ""},
		{"module in pure arithmetic", source{pkg: "pkg/algorithm", imports: []string{"github.com/goccy/go-yaml"}}, "standard library only"},
		{"prometheus", source{pkg: "pkg/rls", imports: []string{"github.com/prometheus/client_golang/prometheus"}}, "only internal/metrics"},
		{"test module in a library", source{pkg: "pkg/rls", imports: []string{"github.com/stretchr/testify/require"}}, "only test files"},
		{"test module in test support", source{pkg: "pkg/storetest", imports: []string{"pgregory.net/rapid"}}, ""},
		{"new dependency", source{pkg: "pkg/rls", imports: []string{"example.com/left/pad"}}, "docs/adr"},
		{"new dependency in a test", source{pkg: "pkg/rls", test: true, imports: []string{"example.com/left/pad"}}, "docs/adr"},
		{"init", source{pkg: "pkg/rls", inits: true}, "func init"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := broken(tt.file)
			if tt.want == "" {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			require.Contains(t, got[0], tt.want)
		})
	}
}

// readModule parses every Go file of the root module.
func readModule(t *testing.T) []source {
	t.Helper()
	var files []source
	top := root(t)
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != top && foreign(path):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go"):
			return nil
		}
		files = append(files, readSource(t, top, path))
		return nil
	})
	require.NoError(t, err)
	return files
}

// foreign reports whether the directory isn't part of the root module: hidden, test data, or a module of its own.
func foreign(dir string) bool {
	base := filepath.Base(dir)
	if strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" {
		return true
	}
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func readSource(t *testing.T, top, path string) source {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	name, err := filepath.Rel(top, path)
	require.NoError(t, err)
	file := source{name: name, pkg: filepath.ToSlash(filepath.Dir(name)), test: strings.HasSuffix(name, "_test.go")}
	for _, spec := range parsed.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		require.NoError(t, err)
		file.imports = append(file.imports, imported)
	}
	for _, decl := range parsed.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			file.inits = true
		}
	}
	return file
}

// root is the directory of the root module's go.mod.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}

// directRequires lists the modules that a go.mod requires, without those marked as indirect.
func directRequires(text string) []string {
	var direct []string
	inside := false
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "require (":
			inside = true
		case line == ")":
			inside = false
		case strings.HasPrefix(line, "require "), inside && line != "":
			fields := strings.Fields(strings.TrimPrefix(line, "require "))
			if !strings.HasSuffix(line, "// indirect") {
				direct = append(direct, fields[0])
			}
		}
	}
	return direct
}
