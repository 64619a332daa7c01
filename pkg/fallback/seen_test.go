package fallback_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// TestSeenForgetsTheOldest: what was used last is remembered, and what was forgotten starts with a share.
func TestSeenForgetsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s := h.instance(t, 0, 4, func(o *fallback.Options) { o.Seen = 100 })
		const keys = 2000
		for k := range keys {
			require.Equal(t, ratelimit.Admitted, ask(s, cost(local(fmt.Sprint("k", k), daily), 60))[0].Outcome)
			time.Sleep(time.Microsecond)
		}
		h.set(true, false)
		remembered := 0
		for k := range keys {
			admitted := drain(t, s, local(fmt.Sprint("k", k), daily))
			require.Contains(t, []int{10, 25}, admitted)
			if admitted == 10 {
				require.Greater(t, k, keys-1000, "older than many others")
				remembered++
			}
		}
		require.InDelta(t, 160, remembered, 10, "its size, rounded up")
	})
}

// TestSeenIsOfLocalBucketsOnly: others leave no trace, and push nothing out.
func TestSeenIsOfLocalBucketsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		s, b := h.instance(t, 0, 4, func(o *fallback.Options) { o.Seen = 80 }), local("a", daily)
		ask(s, cost(b, 60))
		for k := range 2000 {
			ask(s, take(fmt.Sprint("k", k), daily, policy.Open))
		}
		h.set(true, false)
		require.Equal(t, 10, drain(t, s, b))
	})
}

// TestSeenDenials: a denial tells what is left, too.
func TestSeenDenials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub()
		all, b := h.instances(t, 2), local("a", daily)
		ask(all[0], cost(b, 95))
		require.Equal(t, ratelimit.Denied, ask(all[1], cost(b, 50))[0].Outcome)
		h.set(true, false)
		require.Equal(t, 2, drain(t, all[1], b))
	})
}

// TestSeenLateReplies: a reply that comes late tells of the time when its call was sent. What was said later holds.
func TestSeenLateReplies(t *testing.T) {
	for name, tt := range map[string]struct {
		others uint64 // taken after the call was sent
		refill float64
		want   int // a quarter of what is left
	}{
		"nothing else is known":    {0, daily.Rate, 20},
		"a later call left less":   {60, daily.Rate, 10},
		"with what refilled since": {0, algorithm.RatePer(time.Second, 4), 21},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, l := newHub(), daily
				l.Rate = tt.refill
				s, b := h.instance(t, 0, 4), local("a", l)
				sent := time.Now()
				late := ask(h.Store, cost(b, 20))
				time.Sleep(time.Second)
				if tt.others > 0 {
					ask(s, cost(b, tt.others-20))
				}
				h.set(true, false)
				s.Learn([]ratelimit.Bucket{b}, late, sent)
				first := ask(s, b)[0]
				require.Equal(t, ratelimit.FromLocal, first.Source)
				require.Equal(t, tt.want-1, int(first.Remaining+0.01))
			})
		})
	}
}

// instant answers at once.
type instant struct{}

func (instant) Acquire(_ context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	for i := range buckets {
		results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Remaining: 7}
	}
	return results[:len(buckets)]
}

// BenchmarkUntroubled is what a decision costs while the store works: of an open bucket, and of a local one that is remembered.
func BenchmarkUntroubled(b *testing.B) {
	for name, mode := range map[string]policy.FailureMode{"open": policy.Open, "local": policy.Local} {
		for keys := range []int{1, 100_000} {
			n := []int{1, 100_000}[keys]
			b.Run(fmt.Sprintf("%s/keys=%d", name, n), func(b *testing.B) {
				s := fallback.New(fallback.Options{Store: instant{}, Local: newHub()})
				buckets := make([]ratelimit.Bucket, n)
				for k := range buckets {
					buckets[k] = take(fmt.Sprint("policy-of-a-usual-length:k:ak_5b11618c2e44", k), daily, mode)
				}
				b.ReportAllocs()
				b.RunParallel(func(pb *testing.PB) {
					results := make([]ratelimit.Result, 1)
					for k := 0; pb.Next(); k++ {
						s.Acquire(b.Context(), buckets[k%n:k%n+1], results)
					}
				})
			})
		}
	}
}
