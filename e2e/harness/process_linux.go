package harness

import "syscall"

// childAttributes makes a child that dies with its parent, even if that is killed and can clean up nothing.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
