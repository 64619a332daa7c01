package rejectcache_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// counted is a store that counts the calls and their buckets, and says what it is told to.
type counted struct {
	ratelimit.Store
	calls int
	asked []ratelimit.Op
	// answer, if set, changes the results.
	answer func([]ratelimit.Result)
	// delay is how long a call is on its way, and the answer on its way back.
	there, back time.Duration
}

func (s *counted) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	s.calls++
	for _, b := range buckets {
		s.asked = append(s.asked, b.Op)
	}
	there, back := s.there, s.back
	time.Sleep(there)
	results = s.Store.Acquire(ctx, buckets, results)
	if s.answer != nil {
		s.answer(results)
	}
	time.Sleep(back)
	return results
}

// fixture is a cache in front of a store of its own.
type fixture struct {
	testing.TB
	store *counted
	cache *rejectcache.Cache
}

// newFixture makes them. phase is by how much the store's microseconds begin before the cache's.
func newFixture(t testing.TB, o rejectcache.Options, phase ...time.Duration) *fixture {
	s := &counted{Store: memorybackend.New(memorybackend.Options{MaxBuckets: 1000})}
	for _, d := range phase {
		time.Sleep(d)
	}
	o.Store = s
	return &fixture{TB: t, store: s, cache: rejectcache.New(o)}
}

func take(name string, l algorithm.Limits) ratelimit.Bucket { return with(name, l, ratelimit.Take, 1) }

func with(name string, l algorithm.Limits, op ratelimit.Op, cost uint64) ratelimit.Bucket {
	return ratelimit.Bucket{Key: policy.NewKey(policy.Part{}, name), Limits: l, Op: op, Cost: cost}
}

func (f *fixture) one(b ratelimit.Bucket) ratelimit.Result {
	f.Helper()
	results := f.cache.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)
	require.Len(f, results, 1)
	return results[0]
}

// drain takes all that there is, with one denial of the store's as the last answer.
func (f *fixture) drain(b ratelimit.Bucket) {
	f.Helper()
	for f.one(b).Outcome == ratelimit.Admitted {
	}
}

// expect says who answers b, and how.
func (f *fixture) expect(b ratelimit.Bucket, s ratelimit.Source, o ratelimit.Outcome) ratelimit.Result {
	f.Helper()
	r := f.one(b)
	require.Equal(f, s.String(), r.Source.String())
	require.Equal(f, o, r.Outcome)
	return r
}

var (
	slow  = storetest.TB(3, 1./60)          // a token an hour
	log   = storetest.SL(3, 10*time.Second) // full again after 10 s
	both  = []algorithm.Limits{slow, log}   // that deny for longer than the cache remembers
	forms = []string{"token bucket", "log"} // their names
)

// bubble runs a test for each of both with a clock of its own.
func bubble(t *testing.T, run func(f *fixture, b ratelimit.Bucket)) {
	for i, l := range both {
		t.Run(forms[i], func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { run(newFixture(t, rejectcache.Options{}), take("a", l)) })
		})
	}
}
