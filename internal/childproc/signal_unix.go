//go:build unix

package childproc

import "syscall"

// Pause stops the process where it is: what it holds stays open, nothing answers.
func (p *Process) Pause() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused process go on.
func (p *Process) Resume() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Quit asks the process to end without delay, its own children first.
func (p *Process) Quit() error { return p.cmd.Process.Signal(syscall.SIGQUIT) }
