package policy_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func onePolicy(id string) string {
	return "policies:\n  - {id: " + id + ", key: [ip], algorithm: sliding-log, limit: 5, window: 10s, onStoreFailure: open}\n"
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

func ids(set *policy.Set) (ids []string) {
	for _, p := range set.Policies() {
		ids = append(ids, p.ID)
	}
	return ids
}

func TestLoadDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yml", "c.yaml"} {
		write(t, filepath.Join(dir, name), onePolicy(name))
	}
	for _, name := range []string{
		".hidden.yaml", ".a.yaml.swp", "a.yaml~", "#a.yaml#", "#a.yaml", "a.yaml.bak", "a_test.yaml", "README.md", "4913", "sub/d.yaml", "a.swp",
	} {
		write(t, filepath.Join(dir, name), "not: [a policy file")
	}
	set, err := policy.Load(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"a.yml", "b.yaml", "c.yaml"}, ids(set))
}

// Kubernetes mounts a ConfigMap as links through ..data, which points at a hidden directory.
func TestLoadConfigMap(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "..2026_01_31_18_00_00.1/policies.yaml"), onePolicy("mounted"))
	require.NoError(t, os.Symlink("..2026_01_31_18_00_00.1", filepath.Join(dir, "..data")))
	require.NoError(t, os.Symlink("..data/policies.yaml", filepath.Join(dir, "policies.yaml")))
	for _, path := range []string{dir, filepath.Join(dir, "policies.yaml")} {
		set, err := policy.Load(path)
		require.NoError(t, err)
		require.Equal(t, []string{"mounted"}, ids(set))
	}
}

func TestLoadSeveralPaths(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "one.conf"), onePolicy("one"))
	write(t, filepath.Join(dir, "more/two.yaml"), onePolicy("two"))
	set, err := policy.Load(filepath.Join(dir, "one.conf"), filepath.Join(dir, "more"))
	require.NoError(t, err)
	require.Equal(t, []string{"one", "two"}, ids(set))
}

func TestLoadUnreadable(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "empty.yaml"), "")
	write(t, filepath.Join(dir, "comment.yaml"), "# nothing\n")
	write(t, filepath.Join(dir, "binary.yaml"), "\x7fELF\x02\x01\x00\x00")
	write(t, filepath.Join(dir, "latin1.yaml"), "policies: [] # caf\xe9\n")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "huge.yaml"), bytes.Repeat([]byte("#\n"), 9<<20), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "none"), 0o750))
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "odd/x.yaml"), 0o750))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600))
	require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "dangling.yaml")))

	tests := map[string]string{
		"empty.yaml":    "the file is empty",
		"comment.yaml":  "the file is empty",
		"binary.yaml":   "not a text file: byte 0x7f",
		"latin1.yaml":   "not a text file: byte 0xe9",
		"huge.yaml":     "larger than 16 MiB",
		"none":          "the directory has no *.yaml or *.yml file",
		"odd":           "cannot be read: it is a directory",
		"pipe.yaml":     "cannot be read: it is not a regular file",
		"dangling.yaml": "no such file",
		"missing.yaml":  "no such file",
	}
	for name, want := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := policy.Load(filepath.Join(dir, name))
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, name)
			require.ErrorAs(t, err, &policy.Faults{})
		})
	}
	_, err := policy.Load()
	require.Error(t, err)
	_, err = policy.Load(filepath.Join(dir, "missing.yaml"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestLoadWithoutPermission(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may read everything")
	}
	path := filepath.Join(t.TempDir(), "a.yaml")
	require.NoError(t, os.WriteFile(path, []byte("policies: []"), 0))
	_, err := policy.Load(path)
	require.ErrorIs(t, err, fs.ErrPermission)
}

// The faults of all files come together, in the order of files and lines, those between files too.
func TestLoadAllFaultsOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml"), filepath.Join(dir, "c.yaml")
	write(t, a, onePolicy("same"))
	write(t, b, "domian: edge\n"+onePolicy("same")+"ipv6Prefix: 200\n")
	require.NoError(t, os.Symlink("nowhere", c))
	_, err := policy.Load(a, b, c)
	var faults policy.Faults
	require.True(t, errors.As(err, &faults))
	got := []string{}
	for _, f := range faults {
		got = append(got, f.Pos.String()+" "+f.Message)
	}
	require.Equal(t, []string{
		b + `:1:1 a policy file has no field "domian"`,
		b + `:3:10 two policies have the id "same"`,
		b + `:4:13 ipv6Prefix must be from 1 to 128`,
		c + `:0:0 cannot be read: no such file or directory`,
	}, got)
	require.Contains(t, err.Error(), "first at "+a+":2:10")
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestTexts: what Read gives makes the same set, or the same faults, as the files themselves.
func TestTexts(t *testing.T) {
	texts, err := policy.Read("testdata/valid")
	require.NoError(t, err)
	require.Len(t, texts, 3)
	got, err := policy.LoadTexts(texts...)
	require.NoError(t, err)
	want, err := policy.Load("testdata/valid")
	require.NoError(t, err)
	require.Equal(t, want.Version(), got.Version())

	texts, err = policy.Read("testdata/faults/many.yaml", "testdata/faults/tab.yaml")
	require.NoError(t, err)
	_, gotErr := policy.LoadTexts(texts...)
	_, wantErr := policy.Load("testdata/faults/many.yaml", "testdata/faults/tab.yaml")
	require.Error(t, gotErr)
	require.Equal(t, wantErr.Error(), gotErr.Error())

	_, err = policy.Read("testdata/valid", "testdata/nowhere.yaml", "testdata/neither.yaml")
	var faults policy.Faults
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 2, "all that cannot be read")
	_, err = policy.Read()
	require.ErrorContains(t, err, "no policy file given")
	_, err = policy.LoadTexts()
	require.ErrorContains(t, err, "no policy file given")
}
