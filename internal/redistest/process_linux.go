package redistest

import "syscall"

// childAttributes makes a child that dies with its parent, even if that is killed and can clean up nothing. It has a group of its own, so
// that a Ctrl-C in the terminal reaches only its parent.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
