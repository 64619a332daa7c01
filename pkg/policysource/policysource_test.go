package policysource_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policysource"
)

func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	var sets []*policy.Set
	var errs []error
	var restored []*policy.Set
	source := policysource.New(policysource.Options{
		Path:       file,
		OnSet:      func(set *policy.Set) { sets = append(sets, set) },
		OnError:    func(err error) { errs = append(errs, err) },
		OnRestored: func(set *policy.Set) { restored = append(restored, set) },
	})
	require.Nil(t, source.Set())

	_, err := source.Load(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = source.Load(t.Context())
	require.ErrorIs(t, err, os.ErrNotExist)
	require.Len(t, errs, 1, "the same error is reported once")

	write(t, file, text("one"))
	set, err := source.Load(t.Context())
	require.NoError(t, err)
	require.Same(t, set, source.Set())
	require.Equal(t, []*policy.Set{set}, sets)

	again, err := source.Load(t.Context())
	require.NoError(t, err)
	require.Same(t, set, again, "the same content is no reload")
	require.Len(t, sets, 1)

	write(t, file, "polices: 7")
	_, err = source.Load(t.Context())
	require.Error(t, err)
	_, again2 := source.Load(t.Context())
	require.Equal(t, err, again2, "the same fault")
	require.Len(t, errs, 2)
	require.Same(t, set, source.Set())
	require.Equal(t, err, source.Status().Err)

	write(t, file, text("one"))
	_, err = source.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, sets, 1, "a fault taken back is no reload")
	require.Equal(t, sets, restored)
	_, err = source.Load(t.Context())
	require.NoError(t, err)
	require.Len(t, restored, 1, "told once")

	got := source.Status()
	require.False(t, got.LoadedAt.IsZero())
	got.LoadedAt = time.Time{}
	require.Equal(t, policysource.Status{Path: file, Version: set.Version(), Loads: 1, Failures: 2}, got)
}

func TestLoadHonoursContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := policysource.New(policysource.Options{Path: t.TempDir()}).Load(ctx)
	require.ErrorIs(t, err, context.Canceled)
}

func TestLoadNeverMixesVersions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, text("one"))

	t.Run("changes once while it is read", func(t *testing.T) {
		reads := 0
		source := policysource.New(policysource.Options{Path: file, Read: func(paths ...string) (*policy.Set, error) {
			set, err := policy.Load(paths...)
			if reads++; reads == 1 {
				write(t, file, text("two"))
			}
			return set, err
		}})
		set, err := source.Load(t.Context())
		require.NoError(t, err)
		require.Equal(t, "two", firstID(set))
		require.Equal(t, 2, reads)
	})
	t.Run("changes whenever it is read", func(t *testing.T) {
		source := policysource.New(policysource.Options{Path: file, Read: func(paths ...string) (*policy.Set, error) {
			set, err := policy.Load(paths...)
			write(t, file, text("x"+time.Now().Format("150405.000000000")))
			return set, err
		}})
		_, err := source.Load(t.Context())
		require.ErrorContains(t, err, "changes while it is read")
		require.Nil(t, source.Set())
	})
	t.Run("vanishes while it is read", func(t *testing.T) {
		source := policysource.New(policysource.Options{Path: file, Read: func(paths ...string) (*policy.Set, error) {
			set, err := policy.Load(paths...)
			require.NoError(t, os.Remove(file))
			return set, err
		}})
		_, err := source.Load(t.Context())
		require.ErrorIs(t, err, os.ErrNotExist)
	})
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.yaml", "a.yml", ".hidden.yaml", "b.yaml~", "#b.yaml#", ".b.yaml.swp", "README.md", "4913"} {
		write(t, filepath.Join(dir, name), text("x"))
	}
	got, err := policysource.Files(dir)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "a.yml"), filepath.Join(dir, "b.yaml")}, got)

	got, err = policysource.Files(filepath.Join(dir, "README.md"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(dir, "README.md")}, got, "a file that is named is taken whatever its name")

	_, err = policysource.Files(t.TempDir())
	require.ErrorContains(t, err, "without policy files")
}

func TestUnreadable(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, dir string)
		want string
	}{
		{"empty", func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a.yaml"), " \n\t") }, "a.yaml: the file is empty"},
		{"a directory", func(t *testing.T, dir string) { require.NoError(t, os.Mkdir(filepath.Join(dir, "a.yaml"), 0o700)) }, "not a regular file"},
		{"a device", func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "a.yaml")))
		}, "not a regular file"},
		{"a dangling link", func(t *testing.T, dir string) {
			require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "a.yaml")))
		}, "no such file"},
		{"a loop", func(t *testing.T, dir string) { require.NoError(t, os.Symlink("a.yaml", filepath.Join(dir, "a.yaml"))) }, "too many levels"},
		{"endless", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, "a.yaml"), "x")
			require.NoError(t, os.Truncate(filepath.Join(dir, "a.yaml"), 65<<20))
		}, "larger than 64 MiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "b.yaml"), text("fine"))
			write(t, filepath.Join(dir, "c.yaml"), "")
			tt.make(t, dir)
			source := policysource.New(policysource.Options{Path: dir})
			_, err := source.Load(t.Context())
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, "c.yaml: the file is empty", "all faults at once")
		})
	}
}

func TestPoll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, text("one"))
	synctest.Test(t, func(t *testing.T) {
		r := start(t, policysource.Options{Path: file, PollOnly: true})
		synctest.Wait()
		write(t, file, text("two"))
		time.Sleep(29 * time.Second)
		synctest.Wait()
		require.Equal(t, "one", firstID(r.Set()))
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, "two", firstID(r.Set()))
		require.EqualValues(t, 2, r.Status().Loads)

		write(t, file, "nonsense")
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		require.Equal(t, "two", firstID(r.Set()))
		require.EqualValues(t, 1, r.Status().Failures, "one fault counts once, however often it is read")
	})
}

func TestRunReadsAtItsStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, text("one"))
	synctest.Test(t, func(t *testing.T) {
		sets := make(chan *policy.Set, 10)
		source := policysource.New(policysource.Options{Path: file, PollOnly: true, OnSet: func(set *policy.Set) { sets <- set }})
		_, err := source.Load(t.Context())
		require.NoError(t, err)
		write(t, file, text("two"))

		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			synctest.Wait()
			cancel()
		}()
		require.NoError(t, source.Run(ctx))
		require.Equal(t, "two", firstID(source.Set()))
	})
}

func TestRunStopsWithItsContext(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, text("one"))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("over"))
	require.NoError(t, policysource.New(policysource.Options{Path: file}).Run(ctx))
}
