//go:build linux

package compose

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// space is a thread of the operating system that is in namespaces of its own, and so is what it starts. They end when it does, and on Linux
// so do the processes that it started with a death signal.
type space struct {
	work chan func()
	done chan struct{} // closed when the thread ends
}

// newSpace starts a thread and has it run enter, which moves it into its namespaces. Whoever calls it calls close.
func newSpace(enter func() error) (*space, error) {
	s := &space{work: make(chan func()), done: make(chan struct{})}
	entered := make(chan error)
	onOwnThread(func() {
		defer close(s.done)
		err := enter()
		entered <- err
		if err != nil {
			return
		}
		for f := range s.work {
			f()
		}
	})
	if err := <-entered; err != nil {
		<-s.done
		return nil, err
	}
	return s, nil
}

// onOwnThread runs f on a thread that ends with it. The main thread cannot end, and is where the system looks for the namespaces of the
// whole process: if that is the one it got, it leaves it to somebody else.
func onOwnThread(f func()) {
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() != unix.Getpid() {
			f()
			return // locked: the thread ends
		}
		taken := make(chan struct{})
		go func() {
			runtime.LockOSThread()
			close(taken)
			f()
		}()
		<-taken
		runtime.UnlockOSThread()
	}()
}

// do runs f on the thread.
func (s *space) do(f func() error) error {
	result := make(chan error)
	s.work <- func() { result <- f() }
	return <-result
}

// close ends the thread.
func (s *space) close() {
	close(s.work)
	<-s.done
}
