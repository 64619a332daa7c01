package policysource

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Remote is a place that keeps numbered versions of the policies, one of which is active, such as a database.
type Remote struct {
	// Active tells which version is to be in force. It is asked at each poll, so it has to be cheap. An error that has ErrUnreachable in its chain
	// says that nobody answered; any other that there is something wrong with what is kept there.
	Active func(context.Context) (Version, error)
	// Fetch gives the files of a version. Its errors are like those of Active.
	Fetch func(context.Context, Version) ([]policy.Text, error)
	// Watch, if set, calls changed when another version may be active, and lost with why it cannot tell, until ctx ends.
	Watch func(ctx context.Context, changed func(), lost func(error))
	// KeptFile is where the last good set is kept, for a start without the Remote. It is written for the user alone (mode 0600) and replaced in
	// one step. Empty: nothing is kept.
	KeptFile string
}

// Version names a version of a Remote.
type Version struct {
	Number int64
	Sum    string // differs if the files do
}

// ErrUnreachable is in the chain of an error that says that a Remote did not answer.
var ErrUnreachable = errors.New("cannot be reached")

func (v Version) digest() digest { return sha256.Sum256(fmt.Appendf(nil, "%d %s", v.Number, v.Sum)) }

// loadRemote is Load for a Remote.
func (s *Source) loadRemote(ctx context.Context) (*policy.Set, error) {
	version, err := s.opts.Remote.Active(ctx)
	if err != nil {
		return s.remoteFailed(ctx, digest{}, err)
	}
	s.reached(nil)
	sum := version.digest()
	if set := s.Set(); set != nil && sum == s.good {
		s.takenBack(set)
		s.keepAgain()
		return set, nil
	}
	if err := s.Status().Err; err != nil && sum == s.bad {
		return nil, err
	}
	texts, err := s.opts.Remote.Fetch(ctx, version)
	if err != nil {
		return s.remoteFailed(ctx, sum, err)
	}
	set, err := loadVersion(version.Number, texts)
	if err != nil {
		return s.remoteFailed(ctx, sum, err)
	}
	s.accept(sum, set, Status{Number: version.Number})
	s.keep(version, texts)
	return set, nil
}

// loadVersion makes a set whose positions say which version they are in.
func loadVersion(number int64, texts []policy.Text) (*policy.Set, error) {
	named := make([]policy.Text, len(texts))
	for i, text := range texts {
		named[i] = policy.Text{Path: fmt.Sprintf("version %d: %s", number, printable(text.Path)), Data: text.Data}
	}
	return policy.LoadTexts(named...)
}

// printable is a name without what a terminal would take for an order, since it ends up in errors: whoever wrote it may have planted it.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, name)
}

// remoteFailed notes why the active version is not in force. If nothing is yet, what was kept is put in force.
func (s *Source) remoteFailed(ctx context.Context, sum digest, err error) (*policy.Set, error) {
	switch {
	case ctx.Err() != nil: // nobody waits for it any more
		return nil, errors.Join(ctx.Err(), err)
	case errors.Is(err, ErrUnreachable):
		s.reached(err)
	default:
		_ = s.fail(sum, err)
	}
	if s.Set() != nil {
		return nil, err
	}
	return s.useKept(err)
}

// reached notes whether the Remote answers: err is nil, or why not.
func (s *Source) reached(err error) {
	s.mu.Lock()
	before := s.status.Unreachable
	s.status.Unreachable = err
	s.mu.Unlock()

	if s.opts.OnUnreachable != nil && !sameError(before, err) {
		s.opts.OnUnreachable(err)
	}
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return a.Error() == b.Error()
}

// runRemote is Run for a Remote. Instances that were started together, or told together, do not poll together.
func (s *Source) runRemote(ctx context.Context) {
	changed := make(chan struct{}, 1)
	var watching sync.WaitGroup
	defer watching.Wait()
	if s.opts.Remote.Watch != nil {
		watching.Go(func() {
			told := s.watchErrors()
			s.opts.Remote.Watch(ctx, func() {
				told(nil)
				select {
				case changed <- struct{}{}:
				default: // a look is due already
				}
			}, told)
		})
	}
	poll := time.NewTimer(0) // fires: the read at the start
	defer poll.Stop()
	again := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-poll.C:
		}
		// Load has reported the error and kept it for Status.
		_, _ = s.Load(ctx)
		if s.Status().Unreachable == nil {
			again = firstRetry
			poll.Reset(jitter(s.opts.PollInterval))
		} else {
			poll.Reset(jitter(min(again, s.opts.PollInterval)))
			again = min(2*again, s.opts.PollInterval)
		}
		select { // a flood of notices is no flood of looks; what comes meanwhile is looked at then
		case <-ctx.Done():
		case <-time.After(lull):
		}
	}
}

const (
	// lull is the least time between two looks.
	lull = 50 * time.Millisecond
	// firstRetry is how soon a Remote that did not answer is asked again: a new version may be there. The pauses grow up to the poll's.
	firstRetry = time.Second
)

// jitter is from nine to eleven tenths of interval.
func jitter(interval time.Duration) time.Duration {
	return interval - interval/10 + rand.N(interval/5+1)
}

// watchErrors reports an error once until it changes, or is over (nil).
func (s *Source) watchErrors() func(error) {
	var told error
	return func(err error) {
		if s.opts.OnWatchError != nil && err != nil && !sameError(told, err) {
			s.opts.OnWatchError(err)
		}
		told = err
	}
}
