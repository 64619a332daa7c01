package memorybackend

import (
	"context"
	"math/bits"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Options bound a Store. The zero value gives the defaults.
type Options struct {
	// MaxBuckets is how many buckets are held at most; default 4,000,000, at least 16, at most 2^34. When there are more, those that are full
	// again are forgotten first, then the one in a sample with the smallest share in use, whose missing tokens are counted
	// in Stats. Closed buckets (ratelimit.Bucket.OnFailure) are not forgotten: at most three quarters of the room is theirs, and
	// those that come later share one bucket for all with equal limits. A few more than MaxBuckets may be held, since
	// it is divided among the shards.
	MaxBuckets int
	// MaxRuns is how many runs of log entries (16 bytes each) are held at most, beside one for each log; default
	// 4 x MaxBuckets. When there are more, neighbouring runs of a log that grows are joined under the later time stamp.
	MaxRuns int64
	// Now is the time in microseconds from any fixed origin, above 0. It is called while the shards of the call are locked. Default:
	// monotonic time since New.
	Now func() int64
}

const (
	defaultBuckets  = 4_000_000
	leastBuckets    = 16
	mostBuckets     = 1 << 34 // a terabyte: a bound that no one means, far from where the arithmetic ends
	maxShards       = 256
	bucketsPerShard = 64 // at least, lest a small bound is divided too finely
)

// Store keeps buckets in memory. It implements ratelimit.Store and is safe for concurrent use.
type Store struct {
	ids    policy.Hasher
	now    func() int64
	shift  uint    // the top bits of an identity choose the shard
	shards []shard // the last one has the buckets that closed buckets share
	runs   budget
	claims sync.Pool // of *[]claim, for calls with many buckets
}

var _ ratelimit.Store = (*Store)(nil)

// New makes an empty store.
func New(o Options) *Store {
	if o.MaxBuckets <= 0 {
		o.MaxBuckets = defaultBuckets
	}
	o.MaxBuckets = min(max(o.MaxBuckets, leastBuckets), mostBuckets)
	if o.MaxRuns <= 0 {
		o.MaxRuns = 4 * int64(o.MaxBuckets)
	}
	if o.Now == nil {
		start := time.Now()
		o.Now = func() int64 { return 1 + time.Since(start).Microseconds() }
	}
	n := 1
	for n < maxShards && o.MaxBuckets/(2*n) >= bucketsPerShard {
		n *= 2
	}
	s := &Store{
		ids:    policy.NewHasher(),
		now:    o.Now,
		shift:  uint(64 - bits.TrailingZeros(uint(n))),
		shards: make([]shard, n+1),
	}
	s.runs.most = o.MaxRuns
	s.claims.New = func() any { return new([]claim) }
	most := (o.MaxBuckets + n - 1) / n
	for i := range s.shards {
		sh := &s.shards[i]
		sh.table, sh.runs = newTable(), &s.runs
		sh.most, sh.mostClosed = most, most*3/4
	}
	shared := &s.shards[n] // bounded by the number of distinct limits
	shared.most, shared.mostClosed = 1<<30, 1<<30
	return s
}

// Acquire implements ratelimit.Store. A context that has ended changes nothing; after that nothing is waited for but
// locks that are held for microseconds. Results of Source FromNever tell of a cost above the capacity.
func (s *Store) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if cap(results) < len(buckets) {
		results = make([]ratelimit.Result, len(buckets))
	}
	results = results[:len(buckets)]
	if err := ctx.Err(); err != nil {
		for i := range results {
			results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: err}
		}
		return results
	}
	var few [4]claim // more of them would have to be cleared for every call
	var c call       // filled in place: a literal is built elsewhere and copied, which costs a tenth of a decision
	c.store, c.buckets, c.results, c.claims = s, buckets, results, few[:]
	if len(buckets) > len(few) {
		many := s.claims.Get().(*[]claim)
		defer s.claims.Put(many)
		*many = append((*many)[:0], make([]claim, len(buckets))...)
		c.claims = *many
	}
	c.identify()
	c.lock()
	defer c.unlock()
	c.decide()
	return results
}

// Stats are counts since New, and what is held now.
type Stats struct {
	Buckets       int     // held now, those that are full again but not yet forgotten included
	Evicted       uint64  // buckets forgotten for want of room
	EvictedTokens float64 // what was missing in them: what clients were given by that
	Shared        uint64  // charges to a bucket that closed buckets share for want of room
	Runs          int64   // log runs that memory is held for
	Joined        uint64  // times that a log lost precision for want of room
}

// Stats locks one shard after the other.
func (s *Store) Stats() Stats {
	t := Stats{Runs: s.runs.used.Load()}
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		t.Buckets += sh.held
		t.Evicted += sh.evicted
		t.EvictedTokens += sh.evictedTokens
		t.Joined += sh.joins
		t.Shared += sh.overflows
		sh.mu.Unlock()
	}
	return t
}
