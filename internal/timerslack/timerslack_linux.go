package timerslack

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	slack = 500 * time.Microsecond
	// usual is what a process has if nobody has set it.
	usual = 50 * time.Microsecond
	// begun is set in the environment while the program starts anew: it must not do so again, whatever the slack then is.
	begun = "ENVOY_RLS_STARTED_ANEW"
)

func widen() {
	if _, set := os.LookupEnv(begun); set {
		_ = os.Unsetenv(begun) // the name is sound
		return
	}
	runtime.LockOSThread() // the one that exec makes the only one
	defer runtime.UnlockOSThread()
	program, err := os.Executable()
	if err != nil || current() != usual || set(slack) != nil {
		return
	}
	_ = syscall.Exec(program, os.Args, append(os.Environ(), begun+"=1")) // it returns if that is not allowed
	_ = set(usual)
}

func current() time.Duration {
	n, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}

func set(d time.Duration) error {
	return unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(d), 0, 0, 0)
}
