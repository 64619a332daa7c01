//go:build !linux

package harness

import (
	"os/exec"
	"syscall"
)

func tie(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }
