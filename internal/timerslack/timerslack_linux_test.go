package timerslack

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// child makes the test binary the program that is started anew.
const child = "TIMERSLACK_TEST_CHILD"

// told is what the program says of itself.
type told struct {
	Pid    int
	Args   []string
	Slacks []int // of all threads of which it is told, in nanoseconds
	Begun  bool
	Kept   string // what an environment variable of the caller's is
}

func TestMain(m *testing.M) {
	if os.Getenv(child) == "" {
		os.Exit(m.Run())
	}
	Widen()
	_, inEnvironment := os.LookupEnv(begun)
	t := told{Pid: os.Getpid(), Args: os.Args, Begun: inEnvironment, Kept: os.Getenv("KEPT")}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		panic(err)
	}
	t.Slacks = append(t.Slacks, int(current()))
	for _, thread := range threads {
		text, err := os.ReadFile("/proc/" + thread.Name() + "/timerslack_ns")
		if errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) {
			continue // of other threads root only is told
		}
		if err != nil {
			panic(err)
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			panic(err)
		}
		t.Slacks = append(t.Slacks, n)
	}
	_ = json.NewEncoder(os.Stdout).Encode(t)
}

// start runs the program with a timer slack.
func start(t *testing.T, program string, of time.Duration, environment ...string) (told, int) {
	t.Helper()
	runtime.LockOSThread() // children have the slack of the thread that starts them
	defer runtime.UnlockOSThread()
	require.NoError(t, set(of))
	defer func() { require.NoError(t, set(usual)) }()
	cmd := exec.CommandContext(t.Context(), program, "an argument", "another")
	cmd.Env = append(append(os.Environ(), child+"=1", "KEPT=a b"), environment...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	require.NoError(t, cmd.Run())
	var got told
	require.NoError(t, json.Unmarshal(out.Bytes(), &got), out.String())
	return got, cmd.Process.Pid
}

func requireSlack(t *testing.T, want time.Duration, got []int) {
	t.Helper()
	require.NotEmpty(t, got)
	for _, n := range got {
		require.Equal(t, want, time.Duration(n))
	}
}

func TestWiden(t *testing.T) {
	program, err := os.Executable()
	require.NoError(t, err)
	t.Run("all threads have it, and nothing else is another one", func(t *testing.T) {
		got, pid := start(t, program, usual)
		require.Equal(t, pid, got.Pid)
		require.Equal(t, []string{program, "an argument", "another"}, got.Args)
		require.Equal(t, "a b", got.Kept)
		require.False(t, got.Begun, "children would not start anew")
		requireSlack(t, slack, got.Slacks)
	})
	t.Run("what somebody has set is left", func(t *testing.T) {
		got, _ := start(t, program, 70*time.Microsecond)
		requireSlack(t, 70*time.Microsecond, got.Slacks)
	})
	t.Run("it starts anew once only", func(t *testing.T) {
		got, _ := start(t, program, usual, begun+"=1")
		requireSlack(t, usual, got.Slacks)
		require.False(t, got.Begun)
	})
	t.Run("where it cannot start anew it goes on", func(t *testing.T) {
		gone := filepath.Join(t.TempDir(), "gone")
		copied, err := os.ReadFile(program)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(gone, copied, 0o700))
		// The shell has the program open under a name that is gone when it looks for itself.
		script := `exec 3<"$1"; rm "$1"; shift; exec /proc/self/fd/3 "$@"`
		wrapper := filepath.Join(t.TempDir(), "wrapper")
		require.NoError(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nset -- "+gone+" \"$@\"\n"+script+"\n"), 0o700))
		got, _ := start(t, wrapper, usual)
		require.Equal(t, []string{"an argument", "another"}, got.Args[1:])
		requireSlack(t, usual, got.Slacks)
	})
}
