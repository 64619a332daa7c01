package childproc

import (
	"os/exec"
	"syscall"
)

// tie makes a child that dies with its parent, even if that is killed and can clean up nothing. It has a group of its own, so
// that a Ctrl-C in the terminal reaches only its parent.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}
