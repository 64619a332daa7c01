package faults

import (
	"errors"
	"syscall"
	"time"
)

// Freeze stops the process with which the witness exchanges bytes for a while, as a machine without time would.
func (w *Witness) Freeze(d time.Duration) error {
	err := w.cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(d)
	return errors.Join(err, w.cmd.Process.Signal(syscall.SIGCONT))
}
