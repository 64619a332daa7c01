// Package childproc runs the servers that tests and tools drive, so that none outlives the program that started it.
package childproc

import (
	"os/exec"
	"runtime"
)

// Process is a child process that is watched from its start to its end.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// Start starts cmd. On Linux the child dies when the thread that forked it does, and the runtime may end a thread at any time; so the
// goroutine that starts the child keeps its thread until the child has ended. What cmd.SysProcAttr says besides that stays.
func Start(cmd *exec.Cmd) (*Process, error) {
	tie(cmd)
	p := &Process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // servers end by a signal: always an error
			close(p.done)
		}
	}()
	return p, <-started
}

// Pid is the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Running tells whether the process has not ended, paused or not.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill ends the process, paused or not, and waits until it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.done
}
