package accuracy

import (
	"syscall"
	"time"
	"unsafe"
)

const clockMonotonic = 1

// monotonic reads CLOCK_MONOTONIC, which is what package time counts by, too, but does not tell.
func monotonic() int64 {
	var at syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&at)), 0); errno != 0 {
		return time.Now().UnixNano()
	}
	return at.Nano()
}
