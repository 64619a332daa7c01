//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// asServer makes cmd run as somebody else if we are root, as whom PostgreSQL refuses to run, and gives files to that user.
func asServer(cmd *exec.Cmd, files ...string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := unprivileged()
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := os.Chown(file, uid, gid); err != nil {
			return err
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}

func unprivileged() (uid, gid int, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, unknown := user.Lookup(name)
		if unknown != nil {
			continue
		}
		if uid, err = strconv.Atoi(u.Uid); err != nil {
			return 0, 0, err
		}
		gid, err = strconv.Atoi(u.Gid)
		return uid, gid, err
	}
	return 0, 0, fmt.Errorf("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}
