// Package policysource keeps a policy set in step with the file or directory that it is written in, or with the versions that somebody
// else keeps ([Remote]).
//
// [Source.Load] reads once; [Source.Run] watches and reads again whenever something changed. What cannot be loaded
// (a fault, an empty or vanished file) is reported, and the last good set stays: there is never a moment without policies.
//
//	source := policysource.New(policysource.Options{Path: "config/policies.yaml", OnSet: limiter.Use})
//	if _, err := source.Load(ctx); err != nil {
//		return err // refuse to start
//	}
//	go source.Run(ctx)
package policysource

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Options say where policies come from and who wants to know of them.
type Options struct {
	// Path is a policy file, or a directory of them (*.yaml, *.yml; hidden files are left out). Either may be a symbolic
	// link, as in a Kubernetes ConfigMap. It is not looked at if there is a Remote.
	Path string
	// Remote, if set, is where the policies are instead of Path.
	Remote *Remote
	// PollInterval is how often Run compares the content by itself, in case nobody told of a change. 0: 30 s.
	PollInterval time.Duration
	// Quiet is how long nothing must have changed before Run reads, so that it does not read what is half written. However
	// busy the files are, it waits at most ten times as long. 0: 100 ms.
	Quiet time.Duration
	// PollOnly keeps Run from asking the system for changes, for file systems that do not tell of them.
	PollOnly bool

	// OnSet gets every new set, the first included, before Load returns it.
	OnSet func(*policy.Set)
	// OnError gets what kept a new set from being loaded, once until it changes.
	OnError func(error)
	// OnRestored gets the set in force when the files hold it again after an error, or the Remote confirms what was kept: there is nothing new
	// to load, but nothing wrong either.
	OnRestored func(*policy.Set)
	// OnWatchError gets what keeps Run from noticing changes at once, once until it changes. It polls all the same.
	OnWatchError func(error)
	// OnUnreachable gets why a Remote does not answer, once until it changes, and nil when it answers again.
	OnUnreachable func(error)
	// OnKept gets the set that came from Remote.KeptFile since there is no other, before OnSet does, and why that is so.
	OnKept func(*policy.Set, error)
	// OnNotKept gets why a set could not be written to Remote.KeptFile, once. It is tried again at each poll.
	OnNotKept func(error)

	// Read makes a set of files at Path. Nil: policy.Load.
	Read func(paths ...string) (*policy.Set, error)
}

// Status tells what a Source has done.
type Status struct {
	Path string
	// Version is that of the set in force; empty before the first.
	Version string
	// Number is that of the version in force, if there is a Remote.
	Number int64
	// Kept is whether the set in force came from Remote.KeptFile, and the Remote has not confirmed it yet.
	Kept bool
	// Unreachable is why the Remote did not answer when it was asked last; nil if it did.
	Unreachable error
	// LoadedAt is when the set in force was loaded.
	LoadedAt time.Time
	// Err is why what stands in the files, or is the Remote's active version, is not in force; nil if it is.
	Err error
	// FailedAt is when Err came up.
	FailedAt time.Time
	// Loads and Failures count sets loaded and, once each, the errors that kept one from being loaded.
	Loads, Failures uint64
}

// Source loads policies and keeps the last good set. Make one with New. It is safe for concurrent use.
type Source struct {
	opts Options
	set  atomic.Pointer[policy.Set]

	reading sync.Mutex // held while files are read, so that sets arrive in the order they were written
	good    digest     // of what set was loaded from
	bad     digest     // of what Status.Err is about, if it could be read at all
	unkept  *kept      // what is in force and could not be written to Remote.KeptFile

	mu     sync.Mutex // guards status
	status Status
}

// New makes a Source. It touches no file before Load or Run.
func New(opts Options) *Source {
	if opts.PollInterval <= 0 {
		opts.PollInterval = 30 * time.Second
	}
	if opts.Quiet <= 0 {
		opts.Quiet = 100 * time.Millisecond
	}
	if opts.Read == nil {
		opts.Read = policy.Load
	}
	return &Source{opts: opts, status: Status{Path: opts.Path}}
}

// Set is the last good set; nil before the first.
func (s *Source) Set() *policy.Set { return s.set.Load() }

// Status tells what the Source has done so far.
func (s *Source) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

// Load reads the files if they changed since they were last read, and returns the set in force. An error says why what
// stands in the files is not in force (every fault, as policy.Load gives them); Set is still the last good one then.
func (s *Source) Load(ctx context.Context) (*policy.Set, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	if s.opts.Remote != nil {
		return s.loadRemote(ctx)
	}
	return s.loadFiles()
}

func (s *Source) loadFiles() (*policy.Set, error) {
	now, err := readFiles(s.opts.Path)
	if err != nil {
		return nil, s.fail(digest{}, err)
	}
	if s.Set() != nil && now.sum == s.good {
		set := s.Set()
		s.takenBack(set)
		return set, nil
	}
	if err := s.Status().Err; err != nil && now.sum == s.bad {
		return nil, err
	}
	set, sum, err := s.readSettled(now)
	if err != nil {
		return nil, s.fail(sum, err)
	}
	s.accept(sum, set, Status{})
	return set, nil
}

// readSettled loads a set from files that are the same before and after, so that it is not made of two versions.
func (s *Source) readSettled(before content) (*policy.Set, digest, error) {
	const attempts = 3
	for range attempts {
		set, err := s.opts.Read(before.files...)
		after, errAfter := readFiles(s.opts.Path)
		if errAfter != nil {
			return nil, digest{}, errAfter
		}
		if after.sum == before.sum {
			return set, after.sum, err
		}
		before = after
	}
	return nil, digest{}, fmt.Errorf("%s: %w", s.opts.Path, errUnsettled)
}

var errUnsettled = errors.New("changes while it is read")

// accept puts set in force. Number and Kept of the new status are those of from.
func (s *Source) accept(sum digest, set *policy.Set, from Status) {
	s.good = sum
	s.set.Store(set)

	s.mu.Lock()
	s.status.Version = set.Version()
	s.status.Number, s.status.Kept = from.Number, from.Kept
	s.status.LoadedAt = time.Now()
	if !from.Kept { // what was kept is second best: what is wrong with the best stays
		s.status.Err = nil
		s.status.FailedAt = time.Time{}
	}
	s.status.Loads++
	s.mu.Unlock()

	if s.opts.OnSet != nil {
		s.opts.OnSet(set)
	}
}

// takenBack notes that the files or the Remote hold the set in force again: a fault was taken back.
func (s *Source) takenBack(set *policy.Set) {
	s.mu.Lock()
	failing := s.status.Err != nil || s.status.Kept
	s.status.Kept = false
	s.status.Err = nil
	s.status.FailedAt = time.Time{}
	s.mu.Unlock()

	if failing && s.opts.OnRestored != nil {
		s.opts.OnRestored(set)
	}
}

// fail notes err and reports it unless it is the one that was reported last. It returns err.
func (s *Source) fail(sum digest, err error) error {
	s.bad = sum
	s.mu.Lock()
	again := s.status.Err != nil && s.status.Err.Error() == err.Error()
	if !again {
		s.status.Err = err
		s.status.FailedAt = time.Now()
		s.status.Failures++
	}
	s.mu.Unlock()

	if !again && s.opts.OnError != nil {
		s.opts.OnError(err)
	}
	return err
}
