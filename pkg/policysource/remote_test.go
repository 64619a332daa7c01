package policysource_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policysource"
)

// shelf is a Remote whose versions the test publishes, with all that its Source told.
type shelf struct {
	mu       sync.Mutex
	number   int64
	content  string
	down     error
	asked    int
	fetched  int
	kept     string // path
	changed  func()
	lost     func(error)
	told     []string
	watching chan struct{} // closed when changed and lost are there
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	return &shelf{kept: filepath.Join(t.TempDir(), "state", "policies.kept"), watching: make(chan struct{})}
}

func (s *shelf) publish(content string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	s.content = content
}

func (s *shelf) fails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = err
}

func (s *shelf) looks() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *shelf) active(context.Context) (policysource.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	return policysource.Version{Number: s.number, Sum: s.content}, s.down
}

func (s *shelf) fetch(context.Context, policysource.Version) ([]policy.Text, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fetched++
	return []policy.Text{{Path: "a.yaml", Data: []byte(s.content)}}, nil
}

func (s *shelf) watch(ctx context.Context, changed func(), lost func(error)) {
	s.changed, s.lost = changed, lost
	close(s.watching)
	<-ctx.Done()
}

// tell notes what the Source told.
func (s *shelf) tell(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, fmt.Sprintf(format, args...))
}

// heard is what the Source told since it was asked last.
func (s *shelf) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	return told
}

func (s *shelf) source() *policysource.Source {
	return policysource.New(policysource.Options{
		Remote:        &policysource.Remote{Active: s.active, Fetch: s.fetch, Watch: s.watch, KeptFile: s.kept},
		OnSet:         func(set *policy.Set) { s.tell("set %s", firstID(set)) },
		OnError:       func(err error) { s.tell("error %v", err) },
		OnRestored:    func(set *policy.Set) { s.tell("restored %s", firstID(set)) },
		OnWatchError:  func(err error) { s.tell("watch %v", err) },
		OnUnreachable: func(err error) { s.tell("unreachable %v", err) },
		OnKept:        func(set *policy.Set, err error) { s.tell("kept %s: %v", firstID(set), err) },
		OnNotKept:     func(err error) { s.tell("not kept: %v", err) },
	})
}

var errDown = fmt.Errorf("%w: no route", policysource.ErrUnreachable)

func TestRemote(t *testing.T) {
	s := newShelf(t)
	s.publish(text("one"))
	source := s.source()
	set, err := source.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "one", firstID(set))
	require.Equal(t, "version 1: a.yaml", set.Policies()[0].Pos.File)
	require.Equal(t, []string{"set one"}, s.heard())
	require.EqualValues(t, 1, source.Status().Number)
	again, err := source.Load(t.Context())
	require.NoError(t, err)
	require.Same(t, set, again)
	require.Equal(t, 1, s.fetched, "the files are fetched once")

	s.publish("polices: 7")
	for range 2 {
		_, err = source.Load(t.Context())
		require.ErrorContains(t, err, `version 2: a.yaml:1:1: a policy file has no field "polices"`)
	}
	require.Equal(t, 2, s.fetched, "what is known to be bad is not fetched again")
	require.Len(t, s.heard(), 1, "one error counts once")
	require.Same(t, set, source.Set())
	got := source.Status()
	require.ErrorContains(t, got.Err, "polices")
	require.EqualValues(t, 1, got.Number)
	require.EqualValues(t, 1, got.Failures)

	s.fails(errDown)
	for range 2 {
		_, err = source.Load(t.Context())
		require.ErrorIs(t, err, policysource.ErrUnreachable)
	}
	require.Equal(t, []string{"unreachable cannot be reached: no route"}, s.heard())
	require.Equal(t, errDown, source.Status().Unreachable)
	require.Error(t, source.Status().Err, "version 2 is still bad")

	s.fails(nil)
	s.publish(text("three"))
	_, err = source.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"unreachable <nil>", "set three"}, s.heard())
	got = source.Status()
	require.NoError(t, errors.Join(got.Err, got.Unreachable))
	require.EqualValues(t, 3, got.Number)
	require.EqualValues(t, 2, got.Loads)

	s.fails(errors.New("damaged"))
	_, err = source.Load(t.Context())
	require.ErrorContains(t, err, "damaged")
	s.fails(nil)
	_, err = source.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"error damaged", "restored three"}, s.heard())
}

// TestKept: without the Remote a start works from what was kept, and what comes later replaces it.
func TestKept(t *testing.T) {
	s := newShelf(t)
	s.publish(text("one"))
	_, err := s.source().Load(t.Context())
	require.NoError(t, err)
	info, err := os.Stat(s.kept)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	entries, err := os.ReadDir(filepath.Dir(s.kept))
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing beside it")
	s.heard()

	s.fails(errDown)
	source := s.source()
	set, err := source.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "one", firstID(set))
	require.Equal(t, []string{"unreachable " + errDown.Error(), "kept one: " + errDown.Error(), "set one"}, s.heard())
	got := source.Status()
	require.True(t, got.Kept)
	require.EqualValues(t, 1, got.Number)
	require.Equal(t, errDown, got.Unreachable)
	require.NoError(t, got.Err)

	s.fails(nil)
	_, err = source.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"unreachable <nil>", "restored one"}, s.heard(), "the Remote confirms it")
	require.False(t, source.Status().Kept)

	s.publish("polices: 7")
	source = s.source()
	_, err = source.Load(t.Context())
	require.NoError(t, err)
	require.Equal(t, "one", firstID(source.Set()), "a version that cannot be loaded is no reason not to start")
	require.ErrorContains(t, source.Status().Err, "polices")
	require.True(t, source.Status().Kept)
	s.publish(text("three"))
	_, err = source.Load(t.Context())
	require.NoError(t, err)
	require.NoError(t, source.Status().Err)
	require.False(t, source.Status().Kept)
	s.heard()

	s.fails(errDown)
	_, err = s.source().Load(t.Context())
	require.NoError(t, err)
	require.Contains(t, s.heard(), "set three", "the newest good one is kept")
}

// TestKeptCannotBeUsed: a kept file that is not what was written is refused, and the start with it.
func TestKeptCannotBeUsed(t *testing.T) {
	s := newShelf(t)
	s.publish(text("one"))
	_, err := s.source().Load(t.Context())
	require.NoError(t, err)
	good, err := os.ReadFile(s.kept)
	require.NoError(t, err)
	signed := func(body string) string { return fmt.Sprintf("%x\n%s", sha256.Sum256([]byte(body)), body) }
	tests := map[string]struct{ content, want string }{
		"cut off":      {string(good[:len(good)-10]), "damaged"},
		"another byte": {strings.Replace(string(good), "capacity: 5", "capacity: 6", 1), "damaged"},
		"empty":        {"", "the file is empty"},
		"one line":     {"x", "damaged"},
		"not JSON":     {signed("["), "unexpected end of JSON"},
		"no files":     {signed("{}"), "no policy file"},
		"bad policies": {signed(`{"number": 3, "files": [{"name": "a.yaml", "content": "polices: 7"}]}`), "version 3: a.yaml:1:1"},
	}
	s.fails(errDown)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			write(t, s.kept, tt.content)
			source := s.source()
			_, err := source.Load(t.Context())
			require.ErrorIs(t, err, policysource.ErrUnreachable)
			require.ErrorContains(t, err, "the policies kept in "+s.kept+" cannot be used: ")
			require.ErrorContains(t, err, tt.want)
			require.Nil(t, source.Set())
		})
	}
	require.NoError(t, os.Remove(s.kept))
	_, err = s.source().Load(t.Context())
	require.ErrorContains(t, err, "no policies have been kept in "+s.kept)
	s.kept = ""
	_, err = s.source().Load(t.Context())
	require.Equal(t, errDown, err)
}

// TestNotKept: a place that cannot be written is reported, and the policies are in force all the same.
func TestNotKept(t *testing.T) {
	s := newShelf(t)
	s.kept = filepath.Join(t.TempDir(), "file", "kept")
	write(t, filepath.Dir(s.kept), "not a directory")
	s.publish(text("one"))
	source := s.source()
	_, err := source.Load(t.Context())
	require.NoError(t, err)
	told := s.heard()
	require.Equal(t, "set one", told[0])
	require.Contains(t, told[1], "not kept: keep the policies in "+s.kept+": ")

	require.NoError(t, os.Remove(filepath.Dir(s.kept)))
	_, err = source.Load(t.Context())
	require.NoError(t, err)
	require.FileExists(t, s.kept, "tried again when the database is asked")
	require.Empty(t, s.heard())
	s.fails(errDown)
	_, err = s.source().Load(t.Context())
	require.NoError(t, err)
	require.Contains(t, s.heard()[1], "kept one: ")
	s.fails(nil)

	s.kept = t.TempDir() // a directory
	_, err = s.source().Load(t.Context())
	require.NoError(t, err)
	require.Contains(t, s.heard()[1], "not kept: ")
	beside, err := filepath.Glob(filepath.Join(filepath.Dir(s.kept), ".*"))
	require.NoError(t, err)
	require.Empty(t, beside, "what could not take its place is removed")
}

// TestPlantedName: what somebody named a file gives a terminal no orders when an error has it.
func TestPlantedName(t *testing.T) {
	s := newShelf(t)
	s.publish("polices: 7\n")
	source := policysource.New(policysource.Options{Remote: &policysource.Remote{
		Active: s.active,
		Fetch: func(context.Context, policysource.Version) ([]policy.Text, error) {
			return []policy.Text{{Path: "\x1b[2J\u202e.yaml", Data: []byte(s.content)}}, nil
		},
	}})
	_, err := source.Load(t.Context())
	require.ErrorContains(t, err, "version 1: \uFFFD[2J\uFFFD.yaml:1:1: ")
}

func TestRemoteRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShelf(t)
		s.publish(text("one"))
		source := s.source()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- source.Run(ctx) }()
		<-s.watching
		synctest.Wait()
		require.Equal(t, []string{"set one"}, s.heard(), "read at the start")

		time.Sleep(time.Second)
		s.publish(text("two"))
		s.changed()
		synctest.Wait()
		require.Equal(t, []string{"set two"}, s.heard(), "at once if told")

		s.publish(text("three"))
		time.Sleep(26 * time.Second)
		synctest.Wait()
		require.Empty(t, s.heard())
		time.Sleep(8 * time.Second)
		synctest.Wait()
		require.Equal(t, []string{"set three"}, s.heard(), "within 33 s if not")

		before := s.looks()
		s.publish(text("last"))
		for range 10_000 {
			s.changed()
			time.Sleep(100 * time.Microsecond)
		}
		s.publish(text("later"))
		s.changed()
		time.Sleep(50 * time.Millisecond)
		synctest.Wait() // the look may be due at this very moment
		require.Equal(t, []string{"set last", "set later"}, s.heard())
		require.InDelta(t, 20, s.looks()-before, 3, "a flood of notices in a second is no flood of looks")

		s.fails(errDown)
		s.publish(text("missed"))
		s.changed()
		time.Sleep(time.Second / 2)
		s.fails(nil)
		time.Sleep(time.Second)
		require.Equal(t, []string{"unreachable " + errDown.Error(), "unreachable <nil>", "set missed"}, s.heard(), "asked again soon")

		s.fails(errDown)
		before = s.looks()
		time.Sleep(time.Hour)
		require.InDelta(t, 124, s.looks()-before, 15, "but not often")
		s.fails(nil)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"unreachable " + errDown.Error(), "unreachable <nil>"}, s.heard())

		before = s.looks()
		time.Sleep(time.Hour)
		require.InDelta(t, 120, s.looks()-before, 13)
		for _, err := range []error{errDown, errDown, errors.New("other"), errDown} {
			s.lost(err)
		}
		require.Equal(t, []string{"watch " + errDown.Error(), "watch other", "watch " + errDown.Error()}, s.heard())
		cancel()
		require.NoError(t, <-done)
	})
}

// TestRemoteEnds: to be told to stop while it asks is no failure of the Remote.
func TestRemoteEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newShelf(t)
	source := policysource.New(policysource.Options{
		OnError: func(err error) { s.tell("error %v", err) }, OnUnreachable: func(err error) { s.tell("unreachable %v", err) },
		Remote: &policysource.Remote{KeptFile: s.kept, Active: func(ctx context.Context) (policysource.Version, error) {
			cancel()
			return policysource.Version{}, fmt.Errorf("%w: %w", policysource.ErrUnreachable, ctx.Err())
		}},
	})
	_, err := source.Load(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, s.heard())
}
