package policysource_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policysource"
)

// patience bounds waits for what must happen; no test passes by waiting it out.
const patience = 20 * time.Second

// long reports whether tests run in their long form.
func long() bool { return os.Getenv("ENVOY_RLS_LONG") != "" }

// running is a Source whose Run runs until the test ends.
type running struct {
	*policysource.Source
	t    *testing.T
	sets chan *policy.Set
	errs chan error
}

// start loads path, which must be fine, and runs a Source on it.
func start(t *testing.T, opts policysource.Options) *running {
	t.Helper()
	r := &running{t: t, sets: make(chan *policy.Set, 1000), errs: make(chan error, 1000)}
	opts.OnSet = func(set *policy.Set) { r.sets <- set }
	opts.OnError = func(err error) { r.errs <- err }
	r.Source = policysource.New(opts)
	_, err := r.Load(t.Context())
	require.NoError(t, err)
	<-r.sets

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return r
}

// awaitSet waits for a set whose first policy is id. Sets of what was written before may come first.
func (r *running) awaitSet(id string) {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case set := <-r.sets:
			if firstID(set) == id {
				return
			}
		case <-deadline:
			require.FailNow(r.t, "no new set", "want %s, status %+v", id, r.Status())
		}
	}
}

// awaitError waits for the error that Status has and checks that the set in force is still the one whose first policy is id. What was wrong only
// on the way there comes before.
func (r *running) awaitError(id string) error {
	r.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case err := <-r.errs:
			require.Equal(r.t, id, firstID(r.Set()))
			if status := r.Status(); status.Err != nil && status.Err.Error() == err.Error() {
				require.False(r.t, status.FailedAt.IsZero())
				return err
			}
		case <-deadline:
			require.FailNow(r.t, "no error")
			return nil
		}
	}
}

func firstID(set *policy.Set) string { return set.Policies()[0].ID }

// text is a policy file with one policy.
func text(id string) string {
	return fmt.Sprintf("policies:\n  - {id: %s, key: [ip], algorithm: token-bucket, capacity: 5, refillPerMinute: 5, onStoreFailure: open}\n", id)
}

func write(t *testing.T, path, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
}

// replace writes a file beside path and renames it over path.
func replace(t *testing.T, path, content string) {
	t.Helper()
	write(t, path+".new", content)
	require.NoError(t, os.Rename(path+".new", path))
}

// configMap is a directory as Kubernetes mounts a ConfigMap: policies.yaml -> ..data/policies.yaml, ..data -> a directory
// named by its version.
type configMap struct {
	t       *testing.T
	dir     string
	version int
	old     string
}

func newConfigMap(t *testing.T, content string) *configMap {
	t.Helper()
	c := &configMap{t: t, dir: filepath.Join(t.TempDir(), "policies")}
	require.NoError(t, os.Mkdir(c.dir, 0o700))
	require.NoError(t, os.Symlink("..data/policies.yaml", c.file()))
	c.swap(content)
	return c
}

func (c *configMap) file() string { return filepath.Join(c.dir, "policies.yaml") }

// swap does what the kubelet does for a new version: a new directory, an atomic swap of ..data, the old directory removed.
func (c *configMap) swap(content string) {
	c.t.Helper()
	c.version++
	name := fmt.Sprintf("..2026_01_02_%d", c.version)
	require.NoError(c.t, os.Mkdir(filepath.Join(c.dir, name), 0o700))
	write(c.t, filepath.Join(c.dir, name, "policies.yaml"), content)
	require.NoError(c.t, os.Symlink(name, filepath.Join(c.dir, "..data_tmp")))
	require.NoError(c.t, os.Rename(filepath.Join(c.dir, "..data_tmp"), filepath.Join(c.dir, "..data")))
	if c.old != "" {
		require.NoError(c.t, os.RemoveAll(c.old))
	}
	c.old = filepath.Join(c.dir, name)
}
