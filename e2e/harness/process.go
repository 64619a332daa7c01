// Package harness runs the whole thing as its users do: the service as a process of its own, an upstream, and a real Envoy in front of
// both, configured by the envoy.yaml that the project ships. The demo and the end-to-end tests share it.
package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a child process that is watched from its start to its end.
type Process struct {
	Name   string
	cmd    *exec.Cmd
	output *tail
	done   chan struct{} // closed when the process has ended
	err    error         // how it ended; read only after done
}

// StartProcess starts cmd. What it writes is remembered (the last lines of it) and also goes to out, if that is not nil.
// The process has a group of its own, so that a Ctrl-C in the terminal reaches only its parent, which then stops it in order.
func StartProcess(name string, cmd *exec.Cmd, out io.Writer) (*Process, error) {
	p := &Process{Name: name, cmd: cmd, output: &tail{next: out}, done: make(chan struct{})}
	cmd.Stderr = p.output
	if cmd.Stdout == nil {
		cmd.Stdout = p.output
	}
	tie(cmd)
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Signal sends sig to the process. It does nothing if the process has ended.
func (p *Process) Signal(sig os.Signal) error {
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Wait waits for the end of the process and returns its exit code, -1 if a signal ended it.
func (p *Process) Wait(ctx context.Context) (int, error) {
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode(), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("wait for %s: %w", p.Name, ctx.Err())
	}
}

// Stop asks the process to end, and ends it by force after grace. It returns when the process is gone.
func (p *Process) Stop(grace time.Duration) {
	_ = p.Signal(syscall.SIGCONT) // a paused process cannot end
	_ = p.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		_ = p.Signal(syscall.SIGKILL)
		<-p.done
	}
}

// Obituary says how the process ended and what it wrote last.
func (p *Process) Obituary() string {
	how := "is running"
	select {
	case <-p.done:
		how = "ended: " + p.cmd.ProcessState.String()
	default:
	}
	return fmt.Sprintf("%s %s; its last lines:\n%s", p.Name, how, p.output)
}

// tail remembers the last lines that are written to it. Safe for concurrent use.
type tail struct {
	next io.Writer // may be nil

	mu  sync.Mutex
	buf []byte
}

const tailSize = 8 << 10 // bytes

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if len(t.buf) > 2*tailSize {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-tailSize:]...)
	}
	if t.next != nil {
		_, _ = t.next.Write(b) // a full pipe or a closed terminal is no reason to stop the process
	}
	return len(b), nil
}

// String gives the last 20 lines, indented.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.buf) == 0 {
		return "  (it wrote nothing)"
	}
	lines := strings.Split(strings.TrimRight(string(t.buf), "\n"), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-20):], "\n  ")
}
