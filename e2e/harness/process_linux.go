package harness

import (
	"os/exec"
	"syscall"
)

// tie makes a child that dies with its parent, even if that is killed and can clean up nothing. What cmd.SysProcAttr says besides that stays.
func tie(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pdeathsig = true, syscall.SIGKILL
}
