package lab

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// cpuClock is the kind of clock that counts what the scheduler gave: to the nanosecond, where /proc/PID/stat rounds to hundredths of a second.
const cpuClock = 2

// mostPid is the largest id that Linux gives a process.
const mostPid = 1 << 22

// CPU is the processor time that a process has used, all its threads together.
func CPU(pid int) (time.Duration, error) {
	if pid < 1 || pid > mostPid { // would be another clock's name
		return 0, fmt.Errorf("there is no process %d", pid)
	}
	var ts unix.Timespec
	err := unix.ClockGettime(int32(^pid)<<3|cpuClock, &ts)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESRCH) {
		return 0, fmt.Errorf("process %d has ended", pid)
	}
	if err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}
