package policysource

import (
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
)

// Run loads what changes until ctx ends, and returns nil then. It reads once at its start: nothing that changed since Load
// is lost. One Run at a time.
func (s *Source) Run(ctx context.Context) error {
	if s.opts.Remote != nil {
		s.runRemote(ctx)
		return nil
	}
	w := &watcher{path: s.opts.Path, onError: s.opts.OnWatchError}
	if !s.opts.PollOnly {
		w.open()
		defer w.close()
	}
	poll := time.NewTicker(s.opts.PollInterval)
	defer poll.Stop()
	settle := settling{quiet: s.opts.Quiet, timer: time.NewTimer(0)} // fires: the read at the start
	defer settle.timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-w.events():
			if w.concerns(event) {
				settle.touch()
			}
		case err := <-w.errors():
			// Most likely the system's queue overflowed: whatever it would have told is unknown.
			w.report(err)
			settle.touch()
		case <-poll.C:
			s.follow(ctx, w)
		case <-settle.timer.C:
			settle.since = time.Time{}
			s.follow(ctx, w)
		}
	}
}

// follow reads the files, and again if they led to places that were not watched while it read.
func (s *Source) follow(ctx context.Context, w *watcher) {
	const hops = 3 // links may move on while they are followed; the poll has the last word
	w.watch()
	for range hops {
		// Load has reported the error by OnError and kept it for Status.
		_, _ = s.Load(ctx)
		if !w.watch() {
			return
		}
	}
}

// settling waits until nothing has changed for a while, but not for ever.
type settling struct {
	quiet time.Duration
	timer *time.Timer
	since time.Time // the first change not yet acted on
}

func (s *settling) touch() {
	const patience = 10
	now := time.Now()
	if s.since.IsZero() {
		s.since = now
	}
	s.timer.Reset(min(s.quiet, s.since.Add(patience*s.quiet).Sub(now)))
}

// watcher asks the system to tell of changes around a path. Without a system watcher it does nothing, and never tells.
type watcher struct {
	path    string
	onError func(error)
	system  *fsnotify.Watcher
	trail   trail
	told    string // the last error reported
}

func (w *watcher) open() {
	system, err := fsnotify.NewWatcher()
	if err != nil {
		w.report(fmt.Errorf("watch %s: %w", w.path, err))
		return
	}
	w.system = system
}

func (w *watcher) close() {
	if w.system != nil {
		_ = w.system.Close()
	}
}

func (w *watcher) events() <-chan fsnotify.Event {
	if w.system == nil {
		return nil
	}
	return w.system.Events
}

func (w *watcher) errors() <-chan error {
	if w.system == nil {
		return nil
	}
	return w.system.Errors
}

// concerns reports whether the event is about a name that the policies are reached by.
func (w *watcher) concerns(event fsnotify.Event) bool { return w.trail.has(event.Name) }

// watch brings the watched directories in step with where path leads to now, and reports whether there are new ones.
func (w *watcher) watch() (moved bool) {
	if w.system == nil {
		return false
	}
	old := w.trail
	w.trail = follow(w.path)
	for dir := range old.dirs {
		if _, ok := w.trail.dirs[dir]; !ok {
			_ = w.system.Remove(dir) // it may be gone, and its watch with it
		}
	}
	for dir, info := range w.trail.dirs {
		// Also where it is watched already: a directory that took the place of another has no watch, may have the other's
		// inode number, and the end of the old watch may still be on its way.
		if err := w.system.Add(dir); err != nil {
			delete(w.trail.dirs, dir)
			w.report(fmt.Errorf("watch %s: %w", dir, err))
			continue
		}
		moved = moved || !old.watches(dir, info)
	}
	return moved
}

// report tells of err unless it was the last that was told.
func (w *watcher) report(err error) {
	if err == nil || err.Error() == w.told {
		return
	}
	w.told = err.Error()
	if w.onError != nil {
		w.onError(err)
	}
}
