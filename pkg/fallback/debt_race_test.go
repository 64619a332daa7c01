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

// TestManyOweAtOnce: callers of the same buckets, who come and go while the store does, admit together what the store learns of.
func TestManyOweAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		l := daily
		l.Capacity = 4000
		all := h.instances(t, 2, func(o *fallback.Options) { o.Timeout = 5 * time.Millisecond })
		h.mu.Lock()
		h.before = func([]ratelimit.Bucket) { time.Sleep(200 * time.Microsecond) }
		h.mu.Unlock()
		one, two := local("one", l), take("two", l, policy.Closed)
		var took [2]atomic.Uint64
		var callers sync.WaitGroup
		for i := range 16 {
			callers.Go(func() {
				for n := range 100 {
					time.Sleep(time.Duration(i*7+n%13) * 37 * time.Microsecond)
					buckets := []ratelimit.Bucket{one, two}[:1+(i+n)%2]
					if i%3 == 0 {
						buckets = []ratelimit.Bucket{cost(one, 2)}
					}
					r := all[i%2].Acquire(context.Background(), buckets, nil)
					if r[0].Outcome == ratelimit.Denied || r[len(r)-1].Outcome == ratelimit.Denied {
						continue
					}
					for j := range buckets {
						took[j].Add(buckets[j].Cost)
					}
				}
			})
		}
		for range 12 {
			time.Sleep(9 * time.Millisecond)
			h.set(true, false)
			time.Sleep(31 * time.Millisecond)
			h.set(false, false)
		}
		callers.Wait()
		time.Sleep(10 * time.Second)
		require.InDelta(t, l.Capacity-float64(took[0].Load()), h.left(one), 0.1)
		require.InDelta(t, l.Capacity-float64(took[1].Load()), h.left(two), 0.1)
		require.Positive(t, all[0].Debts().Charged)
		require.Positive(t, took[1].Load())
	})
}
