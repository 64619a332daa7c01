package faults

import (
	"errors"
	"fmt"
	"io"
	"os/exec"
	"sync"
	"time"
)

// Witness tells when the machine itself stands still: it has nothing to do with the service. Every few milliseconds it exchanges a byte with
// another process. When that takes longer than it can on a machine that has time, everything that anybody does at that time is late.
type Witness struct {
	cmd  *exec.Cmd
	to   io.WriteCloser
	from io.ReadCloser
	quit chan struct{}
	done chan error

	mu     sync.Mutex // guards what follows
	stalls []stall
	beat   time.Time // of the last exchange
}

type stall struct{ from, to time.Time }

const (
	witnessEvery = 2 * time.Millisecond
	// witnessTolerance is what an exchange may take.
	witnessTolerance = 3 * time.Millisecond
)

// StartWitness starts to watch the machine. Whoever calls it calls [Witness.Stop].
func StartWitness() (*Witness, error) {
	w := &Witness{cmd: exec.Command("cat"), quit: make(chan struct{}), done: make(chan error, 1)}
	var err error
	if w.to, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if w.from, err = w.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start cat: %w", err)
	}
	go func() { w.done <- w.watch() }()
	return w, nil
}

func (w *Witness) watch() error {
	b := []byte{'.'}
	for due := time.Now(); ; due = due.Add(witnessEvery) {
		select {
		case <-w.quit:
			return nil
		case <-time.After(time.Until(due)):
		}
		if _, err := w.to.Write(b); err != nil {
			return err
		}
		if _, err := io.ReadFull(w.from, b); err != nil {
			return err
		}
		due = w.note(due, time.Now())
	}
}

// note takes note of an exchange, and returns the time from which the next one counts.
func (w *Witness) note(due, now time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.beat = now
	if now.Sub(due) <= witnessTolerance {
		return due
	}
	w.stalls = append(w.stalls, stall{due, now})
	return now
}

// since returns the stalls until now, as times from a beginning. It waits for the exchange that is under way.
func (w *Witness) since(began time.Time) []Span {
	w.await(time.Now())
	w.mu.Lock()
	defer w.mu.Unlock()
	var spans []Span
	for _, s := range w.stalls {
		if s.to.After(began) {
			spans = append(spans, Span{max(0, s.from.Sub(began)), s.to.Sub(began)})
		}
	}
	return merge(spans)
}

func (w *Witness) await(now time.Time) {
	for {
		w.mu.Lock()
		beat := w.beat
		w.mu.Unlock()
		if !beat.Before(now) {
			return
		}
		select {
		case err := <-w.done: // Stop reports it
			w.done <- err
			return
		case <-time.After(witnessEvery):
		}
	}
}

// Stop ends the watch. An error says that it has not lasted until now.
func (w *Witness) Stop() error {
	close(w.quit)
	err := <-w.done
	return errors.Join(err, w.to.Close(), w.cmd.Wait())
}
