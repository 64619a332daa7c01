//go:build linux

package compose

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// root is the file system that a container sees.
type root struct {
	dir      string // a directory of this machine that holds the container's own files
	tools    bool   // the programs of this machine are there
	readOnly bool   // but for what is mounted
	mounts   []mount
}

// mount is a file or directory of this machine in a container, or a file system in memory.
type mount struct {
	source, target string
	readOnly       bool
	memory         bool
	options        string // of the one in memory
}

// enter gives the calling thread mounts of its own, and makes the file system. Outside of the thread none of them is seen.
func (r *root) enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := bind(r.dir, r.dir, false); err != nil {
		return err
	}
	if err := r.basics(); err != nil {
		return err
	}
	for _, m := range r.mounts {
		if err := r.mount(m); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	if r.readOnly {
		return unix.Mount("", r.dir, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	return nil
}

// basics are what every container has.
func (r *root) basics() error {
	if err := os.MkdirAll(filepath.Join(r.dir, "tmp"), 0o777); err != nil {
		return err
	}
	if err := os.Chmod(filepath.Join(r.dir, "tmp"), 0o1777); err != nil {
		return err
	}
	mounts := []mount{{target: "/dev", memory: true, options: "mode=0755"}}
	for _, device := range []string{"null", "zero", "full", "random", "urandom"} {
		mounts = append(mounts, mount{source: "/dev/" + device, target: "/dev/" + device})
	}
	mounts = append(mounts, mount{target: "/dev/shm", memory: true, options: "mode=1777"}, mount{source: "/proc", target: "/proc"})
	if r.tools {
		mounts = append(mounts, mount{source: "/usr", target: "/usr", readOnly: true})
		for _, name := range []string{"/bin", "/sbin", "/lib", "/lib64"} {
			to, err := os.Readlink(name)
			if err != nil { // a directory, or not there
				if _, err := os.Stat(name); err == nil {
					mounts = append(mounts, mount{source: name, target: name, readOnly: true})
				}
				continue
			}
			if err := os.Symlink(to, filepath.Join(r.dir, name)); err != nil && !os.IsExist(err) {
				return err
			}
		}
	}
	for _, m := range mounts {
		if err := r.mount(m); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	for name, to := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"} {
		if err := os.Symlink(to, filepath.Join(r.dir, "dev", name)); err != nil {
			return err
		}
	}
	return nil
}

func (r *root) mount(m mount) error {
	target := filepath.Join(r.dir, m.target)
	if m.memory {
		if err := os.MkdirAll(target, 0o755); err != nil {
			return err
		}
		return unix.Mount("tmpfs", target, "tmpfs", 0, m.options)
	}
	info, err := os.Stat(m.source)
	if err != nil {
		return err
	}
	if err := mountPoint(target, info.IsDir()); err != nil {
		return err
	}
	return bind(m.source, target, m.readOnly)
}

// mountPoint makes the file or directory that a mount covers.
func mountPoint(path string, isDir bool) error {
	if isDir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return file.Close()
}

func bind(source, target string, readOnly bool) error {
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	if !readOnly {
		return nil
	}
	return unix.Mount("", target, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
}

// confine makes cmd see nothing but the container's files, and start in one of its directories.
func (r *root) confine(cmd *exec.Cmd, dir string) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Chroot = r.dir
	cmd.Dir = "/" + strings.TrimPrefix(dir, "/")
	cmd.Err = nil // of the search for the program, which was made outside
}

// find looks for a program as execvp does, in the container. It has to run on the container's thread.
func (r *root) find(name, path string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for dir := range strings.SplitSeq(path, ":") {
		if info, err := os.Lstat(filepath.Join(r.dir, dir, name)); err == nil && !info.IsDir() {
			return dir + "/" + name, nil
		}
	}
	return "", fmt.Errorf("%s: no such program in the image", name)
}
