package policysource_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policysource"
)

// TestField_ConfigMapSwap: new limits long before the files are polled, twice in a row; in the long form within 2 s.
func TestField_ConfigMapSwap(t *testing.T) {
	paths := map[string]func(*configMap) string{
		"file":      func(c *configMap) string { return c.file() },
		"directory": func(c *configMap) string { return c.dir },
		"link to the directory": func(c *configMap) string {
			link := filepath.Join(filepath.Dir(c.dir), "link")
			require.NoError(c.t, os.Symlink(c.dir, link))
			return link
		},
	}
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			c := newConfigMap(t, text("v0"))
			r := start(t, policysource.Options{Path: path(c)})
			for _, id := range []string{"v1", "v2", "v3"} {
				swapped := time.Now()
				c.swap(text(id))
				r.awaitSet(id)
				took := time.Since(swapped)
				require.True(t, took < 2*time.Second || !long(), "%v", took)
			}
		})
	}
}

func TestField_Rename(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, text("one"))
	r := start(t, policysource.Options{Path: file})
	for _, id := range []string{"two", "three"} {
		replace(t, file, text(id))
		r.awaitSet(id)
	}
}

// TestField_TruncateThenWrite: there is no moment without policies.
func TestField_TruncateThenWrite(t *testing.T) {
	for _, name := range []string{"alone", "beside another"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "a.yaml")
			write(t, file, text("one"))
			path := file
			if name != "alone" {
				write(t, filepath.Join(dir, "b.yaml"), text("other"))
				path = dir
			}
			r := start(t, policysource.Options{Path: path})
			policies := len(r.Set().Policies())
			last := "one"
			for _, id := range []string{"two", "three"} {
				write(t, file, "")
				require.ErrorContains(t, r.awaitError(last), "empty")
				require.Len(t, r.Set().Policies(), policies)
				write(t, file, text(id))
				r.awaitSet(id)
				require.NoError(t, r.Status().Err)
				last = id
			}
		})
	}
}

func TestField_EditorBackups(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "policies.yaml")
	write(t, file, text("one"))
	r := start(t, policysource.Options{Path: dir})
	for _, name := range []string{"policies.yaml~", ".policies.yaml.swp", "#policies.yaml#", "4913", ".#policies.yaml"} {
		write(t, filepath.Join(dir, name), "not: [policies")
	}
	// As vim saves: the file becomes the backup, a new one takes its place, the backup goes.
	require.NoError(t, os.Rename(file, file+"~"))
	write(t, file, text("two"))
	require.NoError(t, os.Remove(file+"~"))
	r.awaitSet("two")
	require.Len(t, r.Set().Policies(), 1)
	require.NoError(t, r.Status().Err)
}

// TestField_OldPoliciesStay: whatever becomes of the file, the last good set stays, the reason is told, and the next good
// file is taken.
func TestField_OldPoliciesStay(t *testing.T) {
	tests := []struct {
		name  string
		spoil func(t *testing.T, file string)
		want  string
	}{
		{"empty", func(t *testing.T, file string) { write(t, file, "") }, "empty"},
		{"binary", func(t *testing.T, file string) { write(t, file, "\x00\x01\xff\xfe\x7fELF") }, "policies.yaml"},
		{"faulty", func(t *testing.T, file string) { write(t, file, "policies: 7\n") }, "policies.yaml"},
		{"removed", func(t *testing.T, file string) { require.NoError(t, os.Remove(file)) }, "no such file"},
		{"directory", func(t *testing.T, file string) {
			require.NoError(t, os.Remove(file))
			require.NoError(t, os.Mkdir(file, 0o700))
		}, "without policy files"},
		{"unreadable", func(t *testing.T, file string) {
			if os.Geteuid() == 0 {
				t.Skip("root reads everything")
			}
			require.NoError(t, os.Chmod(file, 0))
		}, "permission denied"},
		{"directory removed", func(t *testing.T, file string) { require.NoError(t, os.RemoveAll(filepath.Dir(file))) }, "no such file"},
		{"directory moved away", func(t *testing.T, file string) {
			require.NoError(t, os.Rename(filepath.Dir(file), filepath.Dir(file)+".old"))
		}, "no such file"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "conf", "policies.yaml")
			require.NoError(t, os.Mkdir(filepath.Dir(file), 0o700))
			write(t, file, text("one"))
			r := start(t, policysource.Options{Path: file})

			tt.spoil(t, file)
			err := r.awaitError("one")
			for !strings.Contains(err.Error(), tt.want) { // what was seen half way
				err = r.awaitError("one")
			}

			require.NoError(t, os.RemoveAll(file))
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
			write(t, file, text("two"))
			r.awaitSet("two")
			require.NoError(t, r.Status().Err)
		})
	}
}

// TestField_500Reloads: goroutines and file descriptors stay within 5 of where they were.
func TestField_500Reloads(t *testing.T) {
	reloads := 100
	if long() {
		reloads = 500
	}
	c := newConfigMap(t, text("v0"))
	r := start(t, policysource.Options{Path: c.file(), Quiet: time.Millisecond})
	c.swap(text("first"))
	r.awaitSet("first")
	goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
	for i := range reloads {
		id := "v" + strconv.Itoa(i)
		c.swap(text(id))
		r.awaitSet(id)
	}
	require.Eventually(t, func() bool {
		return runtime.NumGoroutine() <= goroutines+5 && openDescriptors(t) <= descriptors+5
	}, patience, 10*time.Millisecond, "%d goroutines and %d file descriptors before", goroutines, descriptors)
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc: cannot count file descriptors")
	}
	return len(entries)
}

// TestEndsInStep does at random what people and tools do to files: in the end, the last good content is in force.
func TestEndsInStep(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "conf")
	file := filepath.Join(dir, "policies.yaml")
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.yaml")
	acts := []func(id string){
		func(id string) { write(t, file, text(id)) },
		func(id string) { replace(t, file, text(id)) },
		func(string) { write(t, file, "") },
		func(string) { write(t, file, "\xff\x00") },
		func(string) { require.NoError(t, os.RemoveAll(file)) },
		func(string) {
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.Mkdir(dir, 0o700))
		},
		func(string) {
			require.NoError(t, os.Rename(dir, dir+".old"))
			require.NoError(t, os.Mkdir(dir, 0o700))
			require.NoError(t, os.RemoveAll(dir+".old"))
		},
		func(id string) {
			require.NoError(t, os.RemoveAll(file))
			write(t, elsewhere, text(id))
			require.NoError(t, os.Symlink(elsewhere, file))
		},
	}
	require.NoError(t, os.Mkdir(dir, 0o700))
	write(t, file, text("start"))
	r := start(t, policysource.Options{Path: file, Quiet: time.Millisecond})
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 100 {
		for range random.IntN(4) {
			acts[random.IntN(len(acts))]("between" + strconv.Itoa(i))
		}
		id := "end" + strconv.Itoa(i)
		if random.IntN(2) == 0 {
			require.NoError(t, os.RemoveAll(file))
		}
		write(t, file, text(id))
		r.awaitSet(id)
	}
}
