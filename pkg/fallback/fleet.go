package fallback

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// FleetOptions say how instances learn of each other.
type FleetOptions struct {
	// ID names this instance; no other has it. Required.
	ID string
	// Beat tells the store that this instance lives, and returns who else has said so within Life, this one included. Required.
	Beat func(ctx context.Context, id string) ([]string, error)
	// Life is for how long a beat counts. Default 6 s.
	Life time.Duration
	// Every is how often there is one. Default a third of Life.
	Every time.Duration
	// Least is how many instances there are at the least, also before the store has been reached. Default 1.
	Least int
	// OnError, if set, is told of each beat that failed.
	OnError func(error)
}

const defaultLife = 6 * time.Second

// Fleet knows how many instances live, and which of them this one is. While the store fails it knows what it knew before. It is
// safe for concurrent use.
type Fleet struct {
	options FleetOptions
	now     atomic.Pointer[Instances]
	met     atomic.Bool

	mu      sync.Mutex           // held by who beats, guards what follows
	listed  map[string]time.Time // when each instance was seen last
	working time.Time            // since when no beat has failed; zero: the last one has
}

// NewFleet makes a Fleet that knows of nobody yet.
func NewFleet(o FleetOptions) *Fleet {
	if o.Life <= 0 {
		o.Life = defaultLife
	}
	if o.Every <= 0 {
		o.Every = o.Life / 3
	}
	o.Least = max(o.Least, 1)
	if o.OnError == nil {
		o.OnError = func(error) {}
	}
	f := &Fleet{options: o, listed: map[string]time.Time{}}
	first := Instances{Count: o.Least, Index: -1}
	if o.Least == 1 {
		first.Index = 0
	}
	f.now.Store(&first)
	return f
}

// Instances is what is known now. Before the first beat this instance does not know its place among Least.
func (f *Fleet) Instances() Instances { return *f.now.Load() }

// Met reports whether a beat has ever reached the store.
func (f *Fleet) Met() bool { return f.met.Load() }

// soon is when to try again as long as the store was never reached.
const soon = 200 * time.Millisecond

// Run beats until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	for {
		f.Beat(ctx)
		pause := f.options.Every
		if !f.Met() {
			pause = min(pause, soon)
		}
		if !rest(ctx, pause) {
			return
		}
	}
}

// Beat tells the store once and learns who else lives.
func (f *Fleet) Beat(ctx context.Context) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ids, err := f.options.Beat(ctx, f.options.ID)
	if err != nil {
		f.working = time.Time{}
		if ctx.Err() == nil {
			f.options.OnError(err)
		}
		return
	}
	f.learnLocked(ids, time.Now())
	f.met.Store(true)
}

// learnLocked takes in who lives. An instance that is not listed any more has left only if the store has worked for as long as a
// beat counts: one that was restarted empty has to hear from all of them first.
func (f *Fleet) learnLocked(ids []string, now time.Time) {
	if f.working.IsZero() {
		f.working = now
	}
	for _, id := range ids {
		f.listed[id] = now
	}
	f.listed[f.options.ID] = now
	order := make([]string, 0, len(f.listed))
	for id, seen := range f.listed {
		if seen.Before(f.working) {
			seen = f.working
		}
		if now.Sub(seen) > f.options.Life {
			delete(f.listed, id)
			continue
		}
		order = append(order, id)
	}
	slices.Sort(order)
	f.now.Store(&Instances{Count: max(len(order), f.options.Least), Index: slices.Index(order, f.options.ID)})
}
