package accuracy_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// TestPlantedFaults: each of these stores breaks its promise in one way, and is found out. The faults of a store on Redis are planted where
// its script is.
func TestPlantedFaults(t *testing.T) {
	for _, test := range []struct {
		name string
		make func() ratelimit.Store
		want accuracy.Kind
	}{
		{"a lost write", func() ratelimit.Store { return &forgetful{Store: memory()} }, accuracy.TooMuch},
		{"read, then write", func() ratelimit.Store { return hasty{memory()} }, accuracy.TooMuch},
		{"a cache of denials keyed without cost", func() ratelimit.Store { return newCostless(memory()) }, accuracy.WronglyDenied},
		{"a sibling's charge is not given back", func() ratelimit.Store { return newSlotted(0) }, accuracy.ReadsTooLittle},
		{"given back twice", func() ratelimit.Store { return newSlotted(2) }, accuracy.TooMuch},
		{"a promise too early", func() ratelimit.Store { return early{memory()} }, accuracy.BrokenPromise},
		{"each takes itself for the only one while the store fails", func() ratelimit.Store { return newFleet(false) }, accuracy.TooMuch},
		{"all or none broken", func() ratelimit.Store { return apart{memory()} }, accuracy.ReadsTooLittle},
	} {
		t.Run(test.name, func(t *testing.T) {
			v, err := accuracy.Check(callers(t, test.make, 4, 20*time.Millisecond, 10*time.Second), accuracy.Options{})
			require.NoError(t, err)
			require.Error(t, v.Err())
			t.Log(v.Err())
			require.Contains(t, kinds(v), test.want)
		})
	}
}

// forgetful loses every twentieth charge.
type forgetful struct {
	ratelimit.Store
	mu    sync.Mutex // guards calls
	calls int
}

func (f *forgetful) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	results = f.Store.Acquire(ctx, buckets, results)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls++; f.calls%20 == 0 && buckets[0].Op == ratelimit.Take && results[0].Outcome == ratelimit.Admitted {
		back := buckets[0]
		back.Op = ratelimit.Refund
		f.Store.Acquire(ctx, []ratelimit.Bucket{back}, nil)
	}
	return results
}

// hasty looks first, and charges what it has found good after a while.
type hasty struct{ ratelimit.Store }

func (h hasty) Acquire(ctx context.Context, buckets []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	again := make([]ratelimit.Bucket, len(buckets))
	looks := make([]ratelimit.Bucket, len(buckets))
	for i, b := range buckets {
		again[i], looks[i] = b, b
		if b.Op == ratelimit.Take {
			looks[i].Op, again[i].Op = ratelimit.Peek, ratelimit.Force
		}
	}
	results := h.Store.Acquire(ctx, looks, nil)
	for i := range results {
		if results[i].Outcome != ratelimit.Admitted {
			return results
		}
	}
	time.Sleep(2 * time.Millisecond)
	for i, r := range h.Store.Acquire(ctx, again, nil) {
		results[i].Remaining = r.Remaining
	}
	return results
}

// costless remembers for how long a bucket denies, whatever was asked for.
type costless struct {
	ratelimit.Store
	mu    sync.Mutex // guards until
	until map[string]time.Time
}

func newCostless(s ratelimit.Store) *costless {
	return &costless{Store: s, until: map[string]time.Time{}}
}

func (c *costless) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if b := &buckets[0]; len(buckets) == 1 && b.Op == ratelimit.Take {
		c.mu.Lock()
		wait := time.Until(c.until[b.Key.String()])
		c.mu.Unlock()
		if wait > 0 {
			return []ratelimit.Result{{Outcome: ratelimit.Denied, Source: ratelimit.FromCache, Wait: wait}}
		}
	}
	results = c.Store.Acquire(ctx, buckets, results)
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range results {
		c.until[buckets[i].Key.String()] = time.Now().Add(results[i].Wait)
	}
	return results
}

// early promises too much.
type early struct{ ratelimit.Store }

func (e early) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	results = e.Store.Acquire(ctx, buckets, results)
	for i := range results {
		results[i].Wait /= 2
	}
	return results
}

// apart decides on each bucket by itself.
type apart struct{ ratelimit.Store }

func (a apart) Acquire(ctx context.Context, buckets []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	var results []ratelimit.Result
	for _, b := range buckets {
		results = append(results, a.Store.Acquire(ctx, []ratelimit.Bucket{b}, nil)...)
	}
	return results
}
