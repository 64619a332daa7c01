package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// TestDebtIsPaidBeforeTheStoreDecides: the call that finds the store again charges it first for what it missed.
func TestDebtIsPaidBeforeTheStoreDecides(t *testing.T) {
	for _, limits := range []algorithm.Limits{daily, storetest.SL(100, time.Hour)} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub()
			s, b := h.instance(t, 0, 4), local("a", limits)
			ask(s, cost(b, 40)) // 60 are left, 15 of them here
			h.set(true, false)
			require.Equal(t, 15, drain(t, s, b))
			h.set(false, false)
			time.Sleep(100 * time.Millisecond) // less than until the payer looks
			var results []ratelimit.Result
			for len(results) == 0 || results[0].Source != ratelimit.FromStore {
				results = ask(s, b)
				time.Sleep(10 * time.Millisecond)
			}
			require.InDelta(t, 60-15-1, results[0].Remaining, 0.01)
			require.EqualValues(t, 15, h.forcedOf(b))
		})
	}
}

// TestDebtIsPaidForKeysThatNobodyCalls, in the background, once.
func TestDebtIsPaidForKeysThatNobodyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s := h.instance(t, 0, 4)
		h.set(true, false)
		const keys = 500
		for k := range keys {
			drain(t, s, local(fmt.Sprint("k", k), daily))
		}
		require.EqualValues(t, keys, s.Debts().Buckets)
		time.Sleep(10 * time.Second)
		require.Zero(t, h.called(ratelimit.Force), "nothing is sent to a store that fails")
		h.set(false, false)
		time.Sleep(2 * time.Second)
		for k := range keys {
			require.InDelta(t, 75, h.left(local(fmt.Sprint("k", k), daily)), 0.01)
		}
		d := s.Debts()
		require.Zero(t, d.Buckets)
		require.EqualValues(t, 25*keys, d.Charged)
		require.Equal(t, keys, h.called(ratelimit.Force))
	})
}

// TestDebtMayBeSentOnce: what may have been charged is never charged again.
func TestDebtMayBeSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, 0, 4), local("a", daily)
		h.set(true, false)
		drain(t, s, b)
		h.mu.Lock()
		h.before = func(ops []ratelimit.Bucket) { // the store is back, and fails again when it is charged
			h.set(ops[0].Op == ratelimit.Force, true)
		}
		h.mu.Unlock()
		time.Sleep(5 * time.Second)
		h.mu.Lock()
		h.before = nil
		h.mu.Unlock()
		h.set(false, false)
		time.Sleep(5 * time.Second)
		require.EqualValues(t, 25, h.forcedOf(b))
		require.InDelta(t, 75, h.left(b), 0.01)
		require.EqualValues(t, 25, s.Debts().Unknown)
	})
}

// TestDebtIsNotPaidToAStoreThatFails: it stays owed as long as it has surely not been charged.
func TestDebtIsNotPaidToAStoreThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, 0, 4), local("a", daily)
		h.set(true, false)
		drain(t, s, b)
		for range 10 { // the store answers a look, and then no more
			h.set(false, false)
			time.Sleep(100 * time.Millisecond)
			h.set(true, false)
			ask(s, b)
			time.Sleep(3 * time.Second)
		}
		h.set(false, false)
		time.Sleep(3 * time.Second)
		require.EqualValues(t, 25, h.forcedOf(b))
		require.Zero(t, s.Debts().Buckets)
	})
}

// TestDebtIsAsMuchAsTheShareMisses: a long outage's admissions have been refilled in the store, too.
func TestDebtIsAsMuchAsTheShareMisses(t *testing.T) {
	tests := []struct {
		name   string
		limits algorithm.Limits
		pause  time.Duration // after ten calls, before the store is back
		want   float64
	}{
		{"nothing came back", daily, time.Minute, 15},
		{"part of it came back", algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 100, Rate: algorithm.RatePer(time.Hour, 16)}, 30 * time.Minute, 13},
		{"all came back", algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 100, Rate: algorithm.RatePer(time.Hour, 100)}, time.Hour, 0},
		{"a log has forgotten", storetest.SL(100, time.Minute), time.Minute, 0},
		{"a log remembers", storetest.SL(100, time.Hour), time.Minute, 15},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub()
				s, b := h.instance(t, 0, 4), local("a", tt.limits)
				h.set(true, false)
				for range 15 {
					require.Equal(t, ratelimit.Admitted, ask(s, b)[0].Outcome)
				}
				time.Sleep(tt.pause)
				h.set(false, false)
				time.Sleep(2 * time.Second)
				require.EqualValues(t, tt.want, h.forcedOf(b))
				require.Zero(t, s.Debts().Buckets)
			})
		})
	}
}

// TestDebtIsWaitedFor: whoever comes while a debt is being paid waits, within its deadline; then the share answers.
func TestDebtIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, 0, 4), local("a", daily)
		h.set(true, false)
		for range 5 {
			ask(s, b)
		}
		charging, once := make(chan struct{}), sync.Once{}
		h.mu.Lock()
		h.before = func(ops []ratelimit.Bucket) {
			if ops[0].Op == ratelimit.Force {
				once.Do(func() {
					close(charging)
					time.Sleep(20 * time.Millisecond)
				})
			}
		}
		h.mu.Unlock()
		h.set(false, false)
		<-charging
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+3*i)*time.Millisecond)
				defer cancel()
				r := s.Acquire(ctx, []ratelimit.Bucket{b}, nil)[0]
				if i < 6 {
					require.Equal(t, ratelimit.FromLocal, r.Source, "%d", i)
				} else if i > 7 {
					require.Equal(t, ratelimit.FromStore, r.Source, "%d", i)
					require.LessOrEqual(t, r.Remaining, 95.01)
				}
			})
		}
		all.Wait()
	})
}

// TestDebtThatIsRefused is given up after some attempts: it would keep every call from the short way.
func TestDebtThatIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		dead := &broken{Store: h, fails: func(b *ratelimit.Bucket) bool { return b.Op == ratelimit.Force }}
		s, b := h.instance(t, 0, 4, func(o *fallback.Options) {
			o.Store = dead
			o.Classify = func(err error) fallback.Fault {
				return fallback.Fault{Trouble: !errors.Is(err, errGone)}
			}
		}), local("a", daily)
		dead.fails = func(*ratelimit.Bucket) bool { return true }
		for range 3 {
			require.Equal(t, ratelimit.FromLocal, ask(s, b)[0].Source)
		}
		dead.mu.Lock()
		dead.fails = func(b *ratelimit.Bucket) bool { return b.Op == ratelimit.Force }
		dead.mu.Unlock()
		time.Sleep(10 * time.Second)
		require.Equal(t, fallback.Debts{Dropped: 3}, s.Debts())
		require.Equal(t, ratelimit.FromStore, ask(s, b)[0].Source)
	})
}

// TestNoReconcile: what such a policy admits is owed to nobody.
func TestNoReconcile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, 0, 4), local("a", daily)
		b.NoReconcile = true
		h.set(true, false)
		require.Equal(t, 25, drain(t, s, b))
		require.Zero(t, s.Debts().Buckets)
		h.set(false, false)
		time.Sleep(3 * time.Second)
		require.InDelta(t, 99, ask(s, b)[0].Remaining, 0.01)
		require.Zero(t, h.called(ratelimit.Force))
	})
}

// TestDebtOps: what is given back, reported or reset while the store fails changes what it is owed.
func TestDebtOps(t *testing.T) {
	const take, peek, refund, force, reset, put = ratelimit.Take, ratelimit.Peek, ratelimit.Refund, ratelimit.Force, ratelimit.Reset, ratelimit.Put
	type op struct {
		op   ratelimit.Op
		cost uint64
	}
	tests := []struct {
		name string
		ops  []op
		want float64 // left in the store
		here float64 // left of the share after the last operation
	}{
		{"takes", []op{{take, 3}, {take, 4}}, 93, 18},
		{"a look", []op{{take, 3}, {peek, 4}}, 97, 22},
		{"a refund", []op{{take, 3}, {refund, 2}}, 99, 24},
		{"a refund of more", []op{{take, 3}, {refund, 20}}, 100, 25},
		{"a refund of nothing", []op{{refund, 5}}, 100, 25},
		{"a report", []op{{take, 3}, {force, 10}}, 87, 12},
		{"a report of more than there is", []op{{force, 40}}, 75, 0},
		{"a reset", []op{{take, 3}, {reset, 1}}, 100, 25},
		{"a put", []op{{take, 3}, {put, 40}}, 100, 15},
		{"a take after a put", []op{{take, 3}, {put, 40}, {take, 2}}, 98, 13},
		{"a take after a reset", []op{{take, 3}, {reset, 1}, {take, 2}}, 98, 23},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub()
				s, b := h.instance(t, 0, 4), local("a", daily)
				h.set(true, false)
				var r ratelimit.Result
				for _, o := range tt.ops {
					r = ask(s, cost(with(b, o.op), o.cost))[0]
					require.Equal(t, ratelimit.Admitted, r.Outcome)
					require.Equal(t, ratelimit.FromLocal, r.Source)
				}
				require.InDelta(t, tt.here, r.Remaining, 0.01)
				h.set(false, false)
				time.Sleep(3 * time.Second)
				require.InDelta(t, tt.want, h.left(b), 0.01)
				require.Zero(t, s.Debts().Buckets)
			})
		})
	}
}

// TestDebtsAreBounded: what finds no room is counted, and decided all the same.
func TestDebtsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s := h.instance(t, 0, 4, func(o *fallback.Options) { o.MaxDebts = 10 })
		h.set(true, false)
		for k := range 30 {
			require.Equal(t, 25, drain(t, s, local(fmt.Sprint("k", k), daily)))
		}
		d := s.Debts()
		require.EqualValues(t, 10, d.Buckets)
		require.EqualValues(t, 20*25, d.Dropped)
	})
}

// TestCloseCharges: a store that answers is charged before the end, one that does not is not waited for.
func TestCloseCharges(t *testing.T) {
	for _, back := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub()
			s, b := h.instance(t, 0, 4), local("a", daily)
			ask(s, b)
			h.set(true, false)
			drain(t, s, b)
			h.set(!back, false)
			time.Sleep(100 * time.Millisecond)
			began := time.Now()
			s.Close()
			require.LessOrEqual(t, time.Since(began), time.Second)
			if back {
				require.EqualValues(t, 24, h.forcedOf(b))
				require.Zero(t, s.Debts().Dropped)
				return
			}
			require.EqualValues(t, 24, s.Debts().Dropped)
			require.Equal(t, ratelimit.FromLocal, ask(s, b)[0].Source, "a late call is still decided")
		})
	}
}
