// Package redisbackend keeps buckets on Redis: one server, one that sentinels watch, or a cluster. All who use the same Redis share them.
//
// A call's buckets of one slot are decided by one run of a script, on the server's clock. Buckets of several slots take a run each, in
// parallel; what those that admitted have taken is given back when another one denied. Calls to one node travel in batches of
// whatever has piled up while the last ones were on their way.
//
// Nothing that may have been carried out is ever sent a second time: a caller learns by [Error.MayHaveRun] that it is not known.
//
// Most programs want package redislimit: this one with what answers when Redis does not.
package redisbackend

import (
	"context"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Store keeps buckets on Redis. It implements ratelimit.Store and is safe for concurrent use.
type Store struct {
	client *client
	codec  codec
	groups sync.Pool // of *group

	mu        sync.Mutex // guards closing, and late against Close
	closing   bool
	late      sync.WaitGroup // what is given back after its caller has left
	lateUndos int            // of them, charges that were told of when nobody waited any more
}

var _ ratelimit.Store = (*Store)(nil)

// codec is the script with what goes in and comes out.
type codec struct {
	luaScript
	// appendArgs appends all that follows the script's name in EVALSHA, for the buckets at those indices. If open, what is taken may
	// yet be undone, also where its bucket does not say so.
	appendArgs func(args []any, buckets []ratelimit.Bucket, at []int, open bool) []any
	// readReply fills the results at those indices, for one of the calls that the reply is about.
	readReply func(reply any, p place, buckets []ratelimit.Bucket, at []int, results []ratelimit.Result) error
}

// New checks the options. It neither connects nor starts anything: see Start.
func New(o Options) (*Store, error) {
	return newStore(o, codec{script, appendArgs, readReply})
}

func newStore(o Options, with codec) (*Store, error) {
	c, err := newClient(o, with.luaScript)
	if err != nil {
		return nil, err
	}
	s := &Store{client: c, codec: with}
	s.groups.New = func() any { return newGroup(s) }
	return s, nil
}

// Start reads the files that the options name, and begins to connect. An error is about the files. A Redis that cannot be reached is none:
// Start waits for the first attempt, or until ctx ends, and attempts go on until Close. It may be called once.
func (s *Store) Start(ctx context.Context) error { return s.client.start(ctx) }

// Close waits for what is being given back, a second at most, then fails all calls under way, and waits until everything that Start began
// has ended: ConnectionTimeout at most. What a call under way would still give back is given up. The store cannot be started again.
func (s *Store) Close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.late.Wait()
	s.client.close()
}

// Node is the address of the node that has the bucket with this key: the shard that fails or works as one. It is empty while that is
// unknown. It asks nobody.
func (s *Store) Node(key []byte) string {
	r := s.client.routes.Load()
	switch {
	case r == nil:
		return ""
	case r.single != nil:
		return r.single.address
	}
	address, err := r.slots.address(context.Background(), hashTag(key))
	if err != nil {
		return ""
	}
	return address
}

// Acquire implements ratelimit.Store. Buckets of one slot are decided at once. Over several slots the call is all or none in the end: for a
// moment others may see too few tokens. When some slots cannot be decided and no other denies, what was taken stands: whoever answers for
// the failed ones gives it back, if need be. A take that was sent and not answered in time stays charged, if it was carried out, unless its error is
// told to GiveBack. Each error is an *Error.
func (s *Store) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	return s.acquire(ctx, s.client.options.Timeout, buckets, results)
}

// AcquirePatiently is Acquire for whoever is in no hurry, such as a person who changes a bucket: it waits for ConnectionTimeout at most, and
// not for Timeout.
func (s *Store) AcquirePatiently(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	return s.acquire(ctx, s.client.options.ConnectionTimeout, buckets, results)
}

func (s *Store) acquire(
	ctx context.Context, most time.Duration, buckets []ratelimit.Bucket, results []ratelimit.Result,
) []ratelimit.Result {
	if cap(results) < len(buckets) {
		results = make([]ratelimit.Result, len(buckets))
	}
	results = results[:len(buckets)]
	if len(buckets) == 0 {
		return results
	}
	if err := ctx.Err(); err != nil {
		fail(results, &Error{Reason: ReasonUnsent, err: err})
		return results
	}
	g := s.groups.Get().(*group)
	began := time.Now()
	g.begin(buckets, results, began, patience(ctx, began, most))
	if len(g.parts) == 1 {
		g.send(ctx, 0, buckets)
		g.finish(ctx)
	} else {
		g.decide(ctx)
	}
	g.end()
	return results
}

// answering is how much time before the end of a caller's context its answer should be there.
const answering = 5 * time.Millisecond

// patience is how long to wait for a caller, at most for so long.
func patience(ctx context.Context, began time.Time, most time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(began)
		most = min(most, left-min(left/4, answering))
	}
	return most
}

func fail(results []ratelimit.Result, err error) {
	for i := range results {
		results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: err}
	}
}

func takes(op ratelimit.Op) bool { return op == ratelimit.Take || op == ratelimit.Peek }
