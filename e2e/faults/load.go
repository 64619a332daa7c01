package faults

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// Call is one call that a load makes.
type Call struct {
	Shard   int    // whose primary, as the cluster was started, has the key
	Policy  string // that applies, or what else calls are told apart by
	Mode    string // the failure mode of the policy: local, open, closed
	Request *rls.RateLimitRequest
}

// LoadOptions say what a load does.
type LoadOptions struct {
	// PerSecond is how many calls are made, at even distances, whether or not earlier ones have been answered.
	PerSecond int
	// Next returns call n. It is not called at once.
	Next func(n int) Call
	// Ask makes it.
	Ask func(ctx context.Context, n int, c Call) (harness.Answer, error)
}

// CallTimeout is how long an answer is waited for. A call that takes as long hangs: the error is then [context.DeadlineExceeded] or its like.
const CallTimeout = 5 * time.Second

// Load is a stream of calls under way. Its methods are safe for concurrent use.
type Load struct {
	o       LoadOptions
	began   time.Time
	quit    chan struct{}
	stop    sync.Once
	all     sync.WaitGroup
	witness *Witness

	mu        sync.Mutex // guards what follows
	decisions []Decision
	marks     []Mark
}

// StartLoad begins to call. Whoever calls it calls [Load.Stop]. The witness tells when the machine stands still; nil: nobody does.
func StartLoad(o LoadOptions, w *Witness) *Load {
	l := &Load{o: o, began: time.Now(), quit: make(chan struct{}), witness: w}
	l.all.Go(l.run)
	return l
}

func (l *Load) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		due := time.Duration(n) * time.Second / time.Duration(l.o.PerSecond)
		if wait := due - l.Now(); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-l.quit:
				return
			}
		}
		select {
		case <-l.quit:
			return
		default:
		}
		c := l.o.Next(n)
		l.all.Go(func() { l.call(n, c, due) })
	}
}

func (l *Load) call(n int, c Call, due time.Duration) {
	d := Decision{Call: c, Due: due, Late: l.Now() - due}
	ctx, cancel := context.WithTimeout(context.Background(), CallTimeout)
	defer cancel()
	answer, err := l.o.Ask(ctx, n, c)
	d.Took = l.Now() - due
	d.Allowed, d.Source, d.Err = answer.Allowed, answer.Source, err
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decisions = append(l.decisions, d)
}

// Now is the time from the start of the load.
func (l *Load) Now() time.Duration { return time.Since(l.began) }

// Mark notes that something happens now, and returns the time.
func (l *Load) Mark(what string) time.Duration {
	now := l.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.marks = append(l.marks, Mark{now, what})
	return now
}

// Recent returns copies of the decisions so far that were due at or after a time.
func (l *Load) Recent(from time.Duration) []Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	var recent []Decision
	for _, d := range l.decisions {
		if d.Due >= from {
			recent = append(recent, d)
		}
	}
	return recent
}

// Stop ends the stream, waits for the answers, and returns what was seen.
func (l *Load) Stop() *Record {
	l.stop.Do(func() { close(l.quit) })
	l.all.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	r := &Record{Decisions: slices.Clone(l.decisions), Marks: slices.Clone(l.marks)}
	slices.SortStableFunc(r.Decisions, func(a, b Decision) int { return cmp.Compare(a.Due, b.Due) })
	if l.witness != nil {
		r.Stalls = l.witness.since(l.began)
	}
	return r
}
