package redisbackend_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// TestPatience: a caller whose own time is short gets its answer before it is up.
func TestPatience(t *testing.T) {
	for name, tt := range map[string]struct{ own, want time.Duration }{
		"none of its own":  {0, 5 * time.Millisecond},
		"Envoy's default":  {20 * time.Millisecond, 5 * time.Millisecond},
		"little more":      {6 * time.Millisecond, 4500 * time.Microsecond},
		"as much":          {5 * time.Millisecond, 3750 * time.Microsecond},
		"less":             {time.Millisecond, 750 * time.Microsecond},
		"long, as in 50 s": {50 * time.Second, 5 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := redisbackend.New(redisbackend.Options{URLs: []string{"redis://localhost"}})
				require.NoError(t, err)
				ctx := t.Context()
				if tt.own > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.own)
					defer cancel()
				}
				require.Equal(t, tt.want, s.Patience(ctx))
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		s, err := redisbackend.New(redisbackend.Options{URLs: []string{"redis://localhost"}, Timeout: time.Minute})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.Equal(t, 995*time.Millisecond, s.Patience(ctx), "5 ms do for an answer")
	})
}

// lateAfter is the timeout of the store that hears late.
const lateAfter = 500 * time.Millisecond

// belated is a store whose server can be stopped, and what it hears late.
type belated struct {
	*redisbackend.Store
	calm   *redisbackend.Store // for what is not to be late
	server *redistest.Server
	late   chan redisbackend.Call
}

func startBelated(t *testing.T) *belated {
	b := &belated{server: redistest.StartStandalone(t), late: make(chan redisbackend.Call, 10)}
	b.Store = open(t, redisbackend.Options{
		URLs: []string{b.server.URL()}, Timeout: lateAfter, ConnectionTimeout: patient,
		OnLate: func(c *redisbackend.Call) { b.late <- *c },
	})
	b.calm = open(t, redisbackend.Options{URLs: []string{b.server.URL()}, Timeout: patient})
	eventually(t, b.Store, take(key("a", "belated")))
	return b
}

// call makes a call that is answered late, and returns the error of its buckets.
func (b *belated) call(t *testing.T, buckets ...ratelimit.Bucket) *redisbackend.Error {
	t.Helper()
	for len(b.late) > 0 {
		<-b.late // somebody else's
	}
	require.NoError(t, b.server.Pause())
	results := b.Acquire(t.Context(), buckets, nil)
	require.NoError(t, b.server.Resume())
	var e *redisbackend.Error
	for _, r := range results {
		require.True(t, errors.As(r.Err, &e))
		require.Equal(t, redisbackend.ReasonTimeout, e.Reason)
		require.GreaterOrEqual(t, e.Waited, lateAfter)
	}
	for _, k := range buckets {
		clear(k.Key.Bytes()) // the caller's
	}
	return e
}

func (b *belated) left(k policy.Key, like ratelimit.Bucket) float64 {
	like.Key, like.Op, like.Cost = k, ratelimit.Peek, 1
	return one(context.Background(), b.calm, like).Remaining
}

func TestLateReplies(t *testing.T) {
	b := startBelated(t)
	one, two := take(key("a", "late")), take(key("a", "log"))
	two.Limits = storetest.SL(5, time.Hour)
	before := time.Now()
	require.True(t, b.call(t, one, two).MayHaveRun)
	c := <-b.late
	require.Equal(t, b.server.Addr(), c.Node)
	require.Equal(t, []string{key("a", "late").String(), key("a", "log").String()}, []string{c.Buckets[0].Key.String(), c.Buckets[1].Key.String()})
	require.Equal(t, ratelimit.Admitted, c.Results[0].Outcome)
	require.InDelta(t, 99, c.Results[0].Remaining, 0.01)
	require.InDelta(t, 4, c.Results[1].Remaining, 0.01)
	require.WithinRange(t, c.Queued, before, time.Now().Add(-lateAfter))
	require.GreaterOrEqual(t, c.Took, lateAfter)
	require.InDelta(t, 99, b.left(key("a", "late"), one), 0.01, "it stays charged")
}

func TestLateChargesAreGivenBack(t *testing.T) {
	b := startBelated(t)
	for name, when := range map[string]func(*redisbackend.Error){
		"told before the reply comes": func(e *redisbackend.Error) { e.GiveBack(); <-b.late },
		"told after it came":          func(e *redisbackend.Error) { <-b.late; e.GiveBack() },
		"told twice":                  func(e *redisbackend.Error) { e.GiveBack(); <-b.late; e.GiveBack() },
	} {
		t.Run(name, func(t *testing.T) {
			k := func() policy.Key { return key("a", name) }
			log := func() policy.Key { return key("a", name+" log") }
			one, two := take(k()), take(log())
			two.Limits = storetest.SL(5, time.Hour)
			when(b.call(t, one, two))
			require.Eventually(t, func() bool { return b.left(k(), one) == 100 && b.left(log(), two) == 5 }, patient, time.Millisecond)
		})
	}
	t.Run("nothing was charged", func(t *testing.T) {
		k := func() policy.Key { return key("a", "drained") }
		drained, other := take(k()), take(key("a", "sibling"))
		drained.Cost = 100
		one(t.Context(), b.calm, drained)
		drained.Key = k()
		e := b.call(t, drained, other)
		e.GiveBack()
		c := <-b.late
		require.Equal(t, ratelimit.Denied, c.Results[0].Outcome)
		b.Close() // waits for what is given back
		other.Key, other.Op = key("a", "sibling"), ratelimit.Peek
		require.Equal(t, 100.0, one(t.Context(), b.calm, other).Remaining)
		drained.Key, drained.Op, drained.Cost = k(), ratelimit.Peek, 1
		require.Less(t, one(t.Context(), b.calm, drained).Remaining, 1.0)
	})
}
