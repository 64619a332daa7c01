package fallback_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// TestLocalUnseen: four instances that have never seen a key admit its capacity, all together.
func TestLocalUnseen(t *testing.T) {
	for _, limits := range []algorithm.Limits{daily, storetest.SL(100, time.Hour), {Kind: algorithm.TokenBucket, Capacity: 3, Rate: daily.Rate}} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub()
			all := h.instances(t, 4)
			h.set(true, false)
			admitted := 0
			for _, s := range all {
				admitted += drain(t, s, local("unseen", limits))
			}
			require.Equal(t, int(limits.Capacity), admitted)
		})
	}
}

// TestLocalSeen: each instance starts with its part of what it saw last.
func TestLocalSeen(t *testing.T) {
	for _, limits := range []algorithm.Limits{daily, storetest.SL(100, time.Hour)} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub()
			all, b := h.instances(t, 4), local("seen", limits)
			most := 0
			for i, spent := range []uint64{50, 7, 13, 1} {
				seen := ask(all[i], cost(b, spent))[0].Remaining
				most += int(math.Floor(seen / 4))
			}
			h.set(true, false)
			admitted := 0
			for _, s := range all {
				admitted += drain(t, s, b)
			}
			t.Logf("admitted %d, at most %d", admitted, most)
			require.Equal(t, most, admitted)
			require.Equal(t, 12+10+7+7, admitted)
		})
	}
}

// TestLocalSeenAgesAsTheBucketDoes: what was seen long ago has been refilled since.
func TestLocalSeenAgesAsTheBucketDoes(t *testing.T) {
	tests := []struct {
		name   string
		limits algorithm.Limits
		spent  uint64
		after  time.Duration
		want   int
	}{
		{"tokens come back", algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 100, Rate: algorithm.RatePer(time.Minute, 1)}, 100, 40 * time.Minute, 10},
		{"to the brim", algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 100, Rate: algorithm.RatePer(time.Minute, 1)}, 100, 400 * time.Hour, 25},
		{"a log has not moved", storetest.SL(100, time.Hour), 60, 59 * time.Minute, 10},
		{"a log is empty after its window", storetest.SL(100, time.Hour), 60, time.Hour, 25},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHub()
				s, b := h.instance(t, 0, 4), local("a", tt.limits)
				ask(s, cost(b, tt.spent))
				time.Sleep(tt.after)
				h.set(true, false)
				require.Equal(t, tt.want, drain(t, s, b))
			})
		})
	}
}

// TestLocalIsKeptUntilFull: the second outage goes on where the first one ended, and starts anew once the share was full again.
func TestLocalIsKeptUntilFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		limits := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 100, Rate: algorithm.RatePer(time.Hour, 100)}
		s, b := h.instance(t, 0, 4), local("a", limits)
		h.set(true, false)
		require.Equal(t, 25, drain(t, s, b))
		h.set(false, false)
		time.Sleep(12 * time.Minute) // 20 of the whole, 5 of the share
		require.Equal(t, ratelimit.FromStore, ask(s, b)[0].Source)
		h.set(true, false)
		require.Equal(t, 5, drain(t, s, b))
		h.set(false, false)
		time.Sleep(10 * time.Hour)
		ask(s, cost(b, 80))
		h.set(true, false)
		require.Equal(t, 5, drain(t, s, b), "a quarter of the 20 that are left")
	})
}

// TestLocalFlapping: however often the store comes and goes, the instances admit one capacity and the store another.
func TestLocalFlapping(t *testing.T) {
	for _, reconcile := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHub()
			all, b := h.instances(t, 4), local("a", daily)
			b.NoReconcile = !reconcile
			began, admitted := time.Now(), 0
			for round := range 60 {
				h.set(round%2 == 0, false)
				for range 4 {
					time.Sleep(2 * time.Second) // enough to pay what is owed
					for _, s := range all {
						for range 20 {
							if ask(s, b)[0].Outcome == ratelimit.Admitted {
								admitted++
							}
						}
					}
				}
			}
			refill := daily.Rate * float64(time.Since(began).Microseconds())
			t.Logf("reconcile %v: admitted %d", reconcile, admitted)
			if reconcile {
				require.LessOrEqual(t, float64(admitted), 100+refill)
				return
			}
			require.LessOrEqual(t, float64(admitted), 200+refill)
			require.Greater(t, admitted, 100, "it is the reconciling that makes the difference")
		})
	}
}

// TestLocalAboveTheShare: what is more than the share waits for the store, and is not denied for ever.
func TestLocalAboveTheShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b, other := h.instance(t, 0, 4), local("a", daily), local("b", daily)
		h.set(true, false)
		r := ask(s, cost(b, 26), other)
		require.Equal(t, ratelimit.Denied, r[0].Outcome)
		require.Equal(t, ratelimit.FromLocal, r[0].Source)
		require.GreaterOrEqual(t, r[0].Wait, time.Second)
		require.Less(t, r[0].Wait, 5*time.Second)
		require.InDelta(t, 25, r[0].Remaining, 0.01, "what is left is told all the same")
		require.Equal(t, ratelimit.FromLocal, r[1].Source)
		require.Equal(t, ratelimit.Admitted, ask(s, cost(b, 25))[0].Outcome)
		require.Equal(t, 25, drain(t, s, other), "a denied request charges nothing")
	})
}

// TestLocalNothing: an instance whose share of a small limit is nothing denies until the store is back.
func TestLocalNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, -1, 200), local("a", daily)
		h.set(true, false)
		r := ask(s, b)[0]
		require.Equal(t, ratelimit.Denied, r.Outcome)
		require.Equal(t, time.Second, r.Wait)
		for _, op := range []ratelimit.Op{ratelimit.Force, ratelimit.Refund, ratelimit.Reset, ratelimit.Undo} {
			require.Equal(t, ratelimit.Admitted, ask(s, with(b, op))[0].Outcome)
		}
	})
}

// TestLocalAllOrNone: buckets of one request are charged together or not at all, whoever decides them.
func TestLocalAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s := h.instance(t, 0, 4, func(o *fallback.Options) {
			o.Store = &broken{Store: h.Store, fails: func(b *ratelimit.Bucket) bool { return b.OnFailure == policy.Local }}
			o.Shard = func(key []byte) string { return string(key) }
		})
		small := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 8, Rate: daily.Rate}
		a, b, log := local("a", daily), local("b", small), local("c", storetest.SL(100, time.Hour))
		healthy := take("healthy", daily, 0)
		seen := shadow(local("shadow", daily))
		for i := range 2 {
			for j, r := range ask(s, healthy, a, b, log, seen) {
				require.Equal(t, ratelimit.Admitted, r.Outcome, "%d: %d", i, j)
			}
		}
		for range 3 {
			r := ask(s, healthy, a, b, log, seen)
			require.Equal(t, ratelimit.Denied, r[2].Outcome)
			synctest.Wait() // for what is given back
			require.InDelta(t, 98, r[0].Remaining, 0.01)
			require.InDelta(t, 23, r[1].Remaining, 0.01)
			require.InDelta(t, 23, r[3].Remaining, 0)
		}
		require.InDelta(t, 98, h.left(healthy), 0.01)
		require.Equal(t, 23, drain(t, s, a))
		require.Equal(t, 23, drain(t, s, log))
		shadowed := seen
		shadowed.Shadow = false
		require.Equal(t, 23, drain(t, s, shadowed))

		// A denial by the store, or by another mode, charges nothing locally.
		full := local("d", daily)
		empty := cost(take("empty", daily, 0), 100)
		ask(s, empty)
		require.Equal(t, ratelimit.Denied, ask(s, full, cost(empty, 1))[1].Outcome)
		require.Equal(t, 25, drain(t, s, full))
		// Neither does a shadow denial deny.
		require.Equal(t, ratelimit.Admitted, ask(s, shadow(full), local("e", daily))[1].Outcome)
	})
}

// TestLocalStartIsAtomic: many first calls at once make one start.
func TestLocalStartIsAtomic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, 0, 4), local("a", daily)
		ask(s, cost(b, 60))
		h.set(true, false)
		outcomes := make(chan ratelimit.Outcome, 100)
		for range cap(outcomes) {
			go func() { outcomes <- ask(s, b)[0].Outcome }()
		}
		admitted := 0
		for range cap(outcomes) {
			if <-outcomes == ratelimit.Admitted {
				admitted++
			}
		}
		require.Equal(t, 10, admitted)
	})
}

// TestLocalDebt: a bucket that was seen in debt starts with its part of that.
func TestLocalDebt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		limits := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 100, Rate: algorithm.RatePer(time.Hour, 100)}
		s, b := h.instance(t, 0, 4), local("a", limits)
		report := cost(with(b, ratelimit.Force), 140)
		report.Overdraft = 100
		require.InDelta(t, -40, ask(s, report)[0].Remaining, 0.01)
		h.set(true, false)
		r := ask(s, b)[0]
		require.Equal(t, ratelimit.Denied, r.Outcome)
		require.InDelta(t, -10, r.Remaining, 0.01)
		report.Cost = 10
		require.InDelta(t, -20, ask(s, report)[0].Remaining, 0.01)
		report.Cost = 10_000
		require.InDelta(t, -25, ask(s, report)[0].Remaining, 0.01, "the share of the overdraft")
	})
}
