//go:build !linux

package lab

import (
	"errors"
	"time"
)

// CPU is the processor time that a process has used, which only Linux tells of another one.
func CPU(int) (time.Duration, error) { return 0, errors.New("CPU time of another process: Linux only") }
