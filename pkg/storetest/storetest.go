// Package storetest is the conformance suite that every ratelimit.Store passes. Only tests import it.
//
// It judges answers by a model of its own (model.go), written for plainness and not with the arithmetic of pkg/algorithm.
package storetest

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Harness is a store under test and what the suite may expect of it.
type Harness struct {
	Store ratelimit.Store
	// Advance moves the store's clock on, and must be safe for concurrent use. Between its calls the clock stands still, so that
	// answers can be compared to the microsecond. Without it tests that need time to pass are skipped.
	Advance func(time.Duration)
	// StepBack moves the store's clock back. Without it tests of a clock that does so are skipped.
	StepBack func(time.Duration)
	// AcrossTags says that calls are linearizable also when their keys have different hash tags.
	AcrossTags bool
	// LosesUndos says that what a denied call took from buckets with other hash tags may be lost.
	LosesUndos bool
	// ReportsAt says that every Result that carries no error and is not of a Reset has the time of the decision in At.
	ReportsAt bool
}

// Run runs the suite. It opens a store for each test.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	t.Helper()
	for _, group := range [][]test{contractTests, operationTests, timeTests, changeTests, concurrentTests, modelTests} {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				h := open(t)
				if c.clock && h.Advance == nil {
					t.Skip("the store's clock cannot be moved")
				}
				c.run(newFixture(t, h))
			})
		}
	}
}

// test is one test of the suite.
type test struct {
	name  string
	clock bool // needs Harness.Advance
	run   func(f *fixture)
}

// fixture is what a test works with.
type fixture struct {
	testing.TB
	h   Harness
	run string // sets the keys of this test apart from all others
}

func newFixture(t testing.TB, h Harness) *fixture {
	return &fixture{TB: t, h: h, run: strconv.FormatUint(rand.Uint64(), 36)}
}

// TB is a token bucket's limits.
func TB(capacity, perMinute float64) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: capacity, Rate: perMinute / 60e6}
}

// SL is a sliding log's limits.
func SL(limit float64, window time.Duration) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: limit, Window: window.Microseconds()}
}

// key makes a key with the same hash tag for all names.
func (f *fixture) key(name string) policy.Key { return f.keyIn("same", name) }

func (f *fixture) keyIn(tag, name string) policy.Key {
	return policy.NewKey(policy.Part{Name: "tenant", Value: tag + f.run}, name)
}

// take is a Take of one from the bucket called name.
func (f *fixture) take(name string, l algorithm.Limits) ratelimit.Bucket {
	return ratelimit.Bucket{Key: f.key(name), Limits: l, Cost: 1, Op: ratelimit.Take}
}

// with is the bucket with another operation and cost.
func with(b ratelimit.Bucket, op ratelimit.Op, cost uint64) ratelimit.Bucket {
	b.Op, b.Cost = op, cost
	return b
}

// undo is the bucket with the operation that gives back the Take that r answered.
func undo(b ratelimit.Bucket, r ratelimit.Result) ratelimit.Bucket {
	b.Op, b.Before, b.At = ratelimit.Undo, r.Before, r.At
	return b
}

func shadow(b ratelimit.Bucket) ratelimit.Bucket {
	b.Shadow = true
	return b
}

// all makes one call.
func (f *fixture) all(buckets ...ratelimit.Bucket) []ratelimit.Result {
	f.Helper()
	results := f.h.Store.Acquire(context.Background(), buckets, nil)
	require.Len(f, results, len(buckets))
	for i, r := range results {
		require.NoError(f, r.Err, "bucket %d", i)
		require.Contains(f, []ratelimit.Outcome{ratelimit.Admitted, ratelimit.Denied}, r.Outcome, "bucket %d", i)
		require.Equal(f, ratelimit.FromStore, r.Source, "bucket %d", i)
		if r.Tentative {
			require.Equal(f, ratelimit.Denied, r.Outcome, "bucket %d", i)
			require.LessOrEqual(f, r.Wait, time.Second, "bucket %d", i)
		}
	}
	return results
}

// one makes a call about one bucket.
func (f *fixture) one(b ratelimit.Bucket) ratelimit.Result {
	f.Helper()
	return f.all(b)[0]
}

func (f *fixture) admitted(b ratelimit.Bucket) ratelimit.Result {
	f.Helper()
	r := f.one(b)
	require.Equal(f, ratelimit.Admitted, r.Outcome)
	require.Zero(f, r.Wait)
	return r
}

func (f *fixture) denied(b ratelimit.Bucket) ratelimit.Result {
	f.Helper()
	r := f.one(b)
	require.Equal(f, ratelimit.Denied, r.Outcome)
	require.Positive(f, r.Wait)
	return r
}

// left is what a bucket has left, by a Peek.
func (f *fixture) left(b ratelimit.Bucket) float64 {
	f.Helper()
	b.Shadow = false
	return f.one(with(b, ratelimit.Peek, 1)).Remaining
}

// drain takes one at a time until denied, and returns how many were admitted.
func (f *fixture) drain(b ratelimit.Bucket) int {
	f.Helper()
	for n := 0; ; n++ {
		if f.one(b).Outcome == ratelimit.Denied {
			return n
		}
	}
}

// promise checks that a denial's wait is exact: a microsecond earlier the bucket denies, then it admits.
func (f *fixture) promise(b ratelimit.Bucket, wait time.Duration) {
	f.Helper()
	f.h.Advance(wait - time.Microsecond)
	require.Equal(f, time.Microsecond, f.denied(b).Wait, "a microsecond before the end of the wait")
	f.h.Advance(time.Microsecond)
	f.admitted(b)
}
