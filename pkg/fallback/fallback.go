// Package fallback answers for a store that cannot: each bucket without a result is decided by its policy's failure mode, so that there
// is always a decision and never an error.
//
// A closed policy denies, an open one admits, and a local one is decided by what this process has of the limit. When any of them denies
// a request, what its other buckets were charged is given back in the background.
//
// Each shard of the store has a breaker. Three calls in a row that fail open it: the shard's buckets are then answered for at once,
// and now and again one call is let through to see whether the shard is back. While no shard has failed lately, all of this costs a
// call one atomic load.
//
// The deadline is the store's: it must return when the context of a call ends, and better before, as redisbackend.Options.Timeout has
// it. Nothing here waits for anything else.
package fallback

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Options are what a Store is made of.
type Options struct {
	// Store decides as long as it can. Required.
	Store ratelimit.Store
	// Shard names the shard that has the bucket with this key: what fails or works as one. It asks nobody and keeps nothing. An empty name is
	// a shard like any other: where buckets are whose place is not known. Nil: the store is one shard.
	Shard func(key []byte) string
	// Local keeps the buckets of policies whose onStoreFailure is local while Store fails: it is asked about this instance's shares of
	// limits. Nil: those are admitted.
	Local ratelimit.Store
	// Instances says who shares a limit. It must be quick. Nil: this instance is alone.
	Instances func() Instances
	// Seen is for how many buckets it is remembered what Store last said that they have left; default 320,000, which take 8 MB.
	Seen int
	// MaxDebts is for how many buckets it is remembered what Store is to be charged afterwards; default 65,536, which take 300 bytes
	// each and the length of the key.
	MaxDebts int
	// Timeout bounds a call for which Store is first charged what it missed: it then asks twice. 0: Store's own limits do.
	Timeout time.Duration
	// Classify says what an error of Store tells of a shard. Nil: any error is trouble, but that of a context which ended.
	Classify func(error) Fault
	// OnFailure, if set, is told of each bucket that Store could not decide, and why, before Acquire returns: an error of Store, or
	// ErrOpen. It must not keep the bucket.
	OnFailure func(*ratelimit.Bucket, error)
	// OnUndo, if set, is told of each charge that was given back, or could not be: then error says why, and the charge is lost to the
	// client. It is called from another goroutine, and must not keep the bucket.
	OnUndo func(*ratelimit.Bucket, error)
	// OnTransition, if set, is told when a shard's breaker changes its state. Others wait meanwhile: it must be quick, and must not call
	// the Store.
	OnTransition func(Transition)
	// OnWithheld, if set, is called for each call that a breaker kept buckets of from the store: a moment to find out whether they are
	// elsewhere by now. It must be quick.
	OnWithheld func()
	// Regret, if set, is told the error of each bucket of a request that was denied: if it turns out that the store has charged it all the
	// same, that is to be given back.
	Regret func(error)
}

// Fault is what an error of the store tells of a shard.
type Fault struct {
	// Shard is the one that failed. Empty: that of the bucket.
	Shard string
	// Reason is one of a few words.
	Reason string
	// Sent is when the call was made that failed. Zero: it is not known, and the fault is taken for new.
	Sent time.Time
	// MayHaveRun says that the call may have been carried out all the same.
	MayHaveRun bool
	// Trouble says that other calls to the shard fail, too, and that waiting may help. It opens the breaker.
	Trouble bool
	// Answered says that the shard works all the same: the error is about the bucket. It closes the breaker.
	Answered bool
}

// Store is a ratelimit.Store whose results carry no errors. It is safe for concurrent use.
type Store struct {
	options Options
	shards  shards
	local   *local
	trips   sync.Pool // of *trip
	undos   undos
}

var _ ratelimit.Store = (*Store)(nil)

// New makes a Store.
func New(o Options) *Store {
	o.setDefaults()
	s := &Store{options: o, shards: newShards(&o), undos: undos{store: o.Store, tell: o.OnUndo}, local: newLocal(&o)}
	s.local.charge, s.local.condition = s.charge, s.condition
	s.trips.New = func() any { return new(trip) }
	return s
}

func (o *Options) setDefaults() {
	if o.Shard == nil {
		o.Shard = func([]byte) string { return "" }
	}
	if o.Instances == nil {
		o.Instances = func() Instances { return Instances{} }
	}
	if o.MaxDebts <= 0 {
		o.MaxDebts = defaultDebts
	}
	if o.Classify == nil {
		o.Classify = classify
	}
	if o.OnFailure == nil {
		o.OnFailure = func(*ratelimit.Bucket, error) {}
	}
	if o.OnUndo == nil {
		o.OnUndo = func(*ratelimit.Bucket, error) {}
	}
	if o.OnTransition == nil {
		o.OnTransition = func(Transition) {}
	}
	if o.OnWithheld == nil {
		o.OnWithheld = func() {}
	}
	if o.Regret == nil {
		o.Regret = func(error) {}
	}
}

func classify(err error) Fault {
	return Fault{Reason: "error", MayHaveRun: true, Trouble: !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded)}
}

// Close has Store charged what it missed, as far as it can be, and waits for what is being given back: a second at most for each.
// After it nothing is charged or given back any more in the background.
func (s *Store) Close() {
	s.local.close()
	s.undos.close()
}

// Acquire implements ratelimit.Store. No result carries an error.
func (s *Store) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if s.shards.untroubled() && !s.local.owes() {
		results = s.options.Store.Acquire(ctx, buckets, results)
		s.local.watch(buckets, results, 0)
		if failed(results) {
			s.recover(buckets, results)
		}
		return results
	}
	return s.acquireCarefully(ctx, buckets, results)
}

func failed(results []ratelimit.Result) bool {
	for i := range results {
		if results[i].Err != nil {
			return true
		}
	}
	return false
}

// recover answers a call that began when no shard was in trouble.
func (s *Store) recover(buckets []ratelimit.Bucket, results []ratelimit.Result) {
	t := s.trips.Get().(*trip)
	t.begin(s, buckets, results)
	t.record(0)
	t.answer()
	t.end()
}

// acquireCarefully asks the store about those buckets whose shards may be asked.
func (s *Store) acquireCarefully(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if cap(results) < len(buckets) {
		results = make([]ratelimit.Result, len(buckets))
	}
	t := s.trips.Get().(*trip)
	t.begin(s, buckets, results[:len(buckets)])
	sent := s.shards.now()
	t.ask(sent)
	if t.withheld > 0 {
		s.options.OnWithheld()
	}
	ctx, cancel := t.payFirst(ctx)
	defer cancel()
	t.send(ctx)
	t.record(sent)
	t.hold()
	s.local.watch(t.buckets, t.results, 0)
	if failed(t.results) {
		t.answer()
	}
	results = t.results
	t.end()
	return results
}
