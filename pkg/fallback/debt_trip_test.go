package fallback_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// TestALookDeniesNobodyElse: a bucket that is only looked at, to find out whether the store is back, has no say in it. Its share decides,
// and a request that is admitted is charged in full.
func TestALookDeniesNobodyElse(t *testing.T) {
	for name, owing := range map[string]ratelimit.Bucket{
		"a take":   local("owing", daily),
		"a report": with(local("owing", daily), ratelimit.Force),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub()
				s, other := h.instance(t, 0, 4), take("other", daily, policy.Closed)
				h.set(true, false)
				for range 3 {
					require.Equal(t, ratelimit.FromLocal, ask(s, owing)[0].Source)
				}
				ask(h.Store, with(cost(owing, 100), ratelimit.Force)) // others drain it
				h.set(false, false)
				time.Sleep(30 * time.Millisecond) // a probe is due; the background looks later
				r := ask(s, owing, other)
				require.Equal(t, ratelimit.FromLocal, r[0].Source)
				require.Equal(t, ratelimit.Admitted, r[0].Outcome)
				require.Equal(t, ratelimit.FromStore, r[1].Source)
				require.Equal(t, ratelimit.Admitted, r[1].Outcome)
				require.InDelta(t, 99, h.left(other), 0.01)
			})
		})
	}
}

// stuck is a store that is down, then answers nothing until the caller leaves.
type stuck struct {
	mu    sync.Mutex
	hangs bool
	asked int // since it hangs
}

func (s *stuck) Acquire(ctx context.Context, buckets []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	s.mu.Lock()
	hangs := s.hangs
	if hangs {
		s.asked++
	}
	if s.asked > 1000 {
		panic("asked again and again")
	}
	s.mu.Unlock()
	err := errGone
	if hangs {
		<-ctx.Done()
		err = ctx.Err()
	}
	results := make([]ratelimit.Result, len(buckets))
	for i := range results {
		results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: err}
	}
	return results
}

// TestCloseWhileTheStoreIsLookedAt: Close ends a look at a store which does not answer.
func TestCloseWhileTheStoreIsLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dead := &stuck{}
		s := newHub().instance(t, 0, 4, func(o *fallback.Options) { o.Store, o.Classify = dead, nil })
		for range 3 {
			ask(s, local("a", daily))
		}
		dead.mu.Lock()
		dead.hangs = true
		dead.mu.Unlock()
		time.Sleep(300 * time.Millisecond) // the background looks, and waits
		began := time.Now()
		s.Close()
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		require.Equal(t, fallback.Debts{Dropped: 3}, s.Debts())
		dead.mu.Lock()
		dead.hangs = false
		dead.mu.Unlock()
		require.Equal(t, ratelimit.FromLocal, ask(s, local("a", daily))[0].Source)
		require.Equal(t, fallback.Debts{Dropped: 4}, s.Debts(), "what nobody will pay is not kept")
	})
}

// TestALookThatTellsNothing: a store is not asked about a debt again and again, as fast as it answers, if its answers tell nothing of it.
func TestALookThatTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		failing := &broken{Store: h, fails: func(*ratelimit.Bucket) bool { return true }}
		var trouble atomic.Bool
		trouble.Store(true)
		var asked atomic.Int32
		s := h.instance(t, 0, 4, func(o *fallback.Options) {
			o.Store = failing
			o.Classify = func(error) fallback.Fault {
				if asked.Add(1) > 1000 {
					panic("asked again and again")
				}
				return fallback.Fault{Trouble: trouble.Load()}
			}
		})
		for range 3 {
			ask(s, local("a", daily))
		}
		trouble.Store(false)
		asked.Store(0)
		time.Sleep(2 * time.Second)
		require.LessOrEqual(t, asked.Load(), int32(10))
	})
}

// refusing is a store that is down, then refuses what it is charged.
type refusing struct {
	up      atomic.Bool
	charges int
	fifth   func() // called while the fifth charge is under way
}

func (s *refusing) Acquire(_ context.Context, buckets []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	results := make([]ratelimit.Result, len(buckets))
	for i := range buckets {
		results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore}
		if force := buckets[i].Op == ratelimit.Force; force || !s.up.Load() {
			results[i].Err = errGone
			if force {
				s.charges++
			}
		}
	}
	if buckets[0].Op == ratelimit.Force && s.charges == 5 {
		s.fifth()
	}
	return results
}

// TestANewDebtIsNotGivenUpWithAnOldOne: how often the old one was refused does not count against what was admitted since.
func TestANewDebtIsNotGivenUpWithAnOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, b := &refusing{}, local("a", daily)
		s := newHub().instance(t, 0, 4, func(o *fallback.Options) {
			o.Store = store
			o.Classify = func(error) fallback.Fault { return fallback.Fault{Trouble: !store.up.Load()} }
		})
		store.fifth = func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			require.Equal(t, ratelimit.FromLocal, s.Acquire(ctx, []ratelimit.Bucket{b}, nil)[0].Source)
		}
		ask(s, b)
		store.up.Store(true)
		time.Sleep(10 * time.Second)
		require.Equal(t, fallback.Debts{Dropped: 2}, s.Debts())
		require.Equal(t, 10, store.charges)
	})
}
