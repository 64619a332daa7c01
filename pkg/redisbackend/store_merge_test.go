package redisbackend_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// merges counts the calls that were decided by the script call of another one.
type merges struct{ atomic.Int64 }

func (m *merges) add(c *redisbackend.Call) {
	if c.Merged {
		m.Add(1)
	}
}

// TestMergedCallsAreExact lets 400 callers wait at once for one bucket that has 100.
func TestMergedCallsAreExact(t *testing.T) {
	server := redistest.StartStandalone(t)
	var merged merges
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: patient, ConnectionTimeout: patient, OnCall: merged.add})
	for i, l := range hundred {
		b := take(key("merged", strconv.Itoa(i)))
		b.Limits = l
		merged.Store(0)
		results := make([]ratelimit.Result, 400)
		var calling atomic.Int64
		var wg sync.WaitGroup
		require.NoError(t, server.Pause())
		for n := range results {
			wg.Go(func() {
				calling.Add(1)
				results[n] = one(context.Background(), s, b)
			})
		}
		require.Eventually(t, func() bool { return calling.Load() == 400 }, patient, time.Millisecond)
		require.NoError(t, server.Resume())
		wg.Wait()
		t.Logf("%d of 400 calls merged", merged.Load())
		require.Positive(t, merged.Load())
		var left []int
		for _, r := range results {
			require.NoError(t, r.Err)
			if r.Outcome == ratelimit.Admitted {
				left = append(left, int(r.Remaining))
				continue
			}
			require.Positive(t, r.Wait)
			require.Zero(t, int(r.Remaining))
		}
		slices.Sort(left)
		want := make([]int, 100)
		for n := range want {
			want[n] = n
		}
		require.Equal(t, want, left, "each that was admitted is told another rest")
	}
}

// TestWaitersOfAMergedCallLeaveAlone: one leaves before the call is sent, and is not charged; one after that, and is.
func TestWaitersOfAMergedCallLeaveAlone(t *testing.T) {
	server := redistest.StartStandalone(t)
	proxy := redistest.StartProxy(t, server)
	var merged merges
	arrived := make(chan ratelimit.Result, 1)
	s := open(t, redisbackend.Options{
		URLs: []string{proxy.URL()}, Mode: "standalone", Timeout: patient, ConnectionTimeout: patient, PoolSize: 2, OnCall: merged.add,
		OnLate: func(c *redisbackend.Call) { arrived <- c.Results[0] },
	})
	b := take(key("leave", "alone"))
	other := take(key("leave", "other"))
	eventually(t, s, other)
	asked, reply := make(chan struct{}, 9), make(chan struct{}, 9)
	proxy.SpoilRequests(func(piece []byte) ([]byte, bool) { asked <- struct{}{}; return piece, true })
	proxy.SpoilReplies(func(piece []byte) ([]byte, bool) { <-reply; return piece, true })
	defer close(reply) // whoever still waits for one

	begin := func(ctx context.Context, b ratelimit.Bucket, queued int) <-chan ratelimit.Result {
		result := make(chan ratelimit.Result, 1)
		go func() { result <- one(ctx, s, b) }()
		require.Eventually(t, func() bool { return s.Nodes()[0].Queued == queued }, patient, time.Millisecond)
		return result
	}
	early, leaveEarly := context.WithCancel(t.Context())
	late, leaveLate := context.WithCancel(t.Context())
	defer leaveLate()
	busy := begin(t.Context(), other, 0)
	<-asked // the only worker waits from now on
	first := begin(early, b, 1)
	second := begin(t.Context(), b, 2)
	third := begin(late, b, 3)
	fourth := begin(t.Context(), b, 4)
	leaveEarly()
	require.Equal(t, redisbackend.ReasonUnsent, reason(<-first))
	reply <- struct{}{}
	require.NoError(t, (<-busy).Err)
	<-asked
	leaveLate()
	require.Equal(t, redisbackend.ReasonTimeout, reason(<-third))
	reply <- struct{}{}
	require.Equal(t, 99, int((<-second).Remaining))
	require.Equal(t, 98, int((<-arrived).Remaining), "what the one that left late would have been told")
	require.Equal(t, 97, int((<-fourth).Remaining), "the one that left late is charged")
	require.Equal(t, int64(1), merged.Load())
}

// TestOnlyTheSameIsMerged: calls that differ in anything are decided each by itself, though all of them wait together.
func TestOnlyTheSameIsMerged(t *testing.T) {
	server := redistest.StartStandalone(t)
	var merged merges
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: patient, ConnectionTimeout: patient, OnCall: merged.add})
	change := func(id string, do func(*ratelimit.Bucket)) ratelimit.Bucket {
		b := take(key("differ", id))
		do(&b)
		return b
	}
	base := take(key("differ", "a"))
	calls := [][]ratelimit.Bucket{
		{base},
		{change("b", func(*ratelimit.Bucket) {})},
		{change("a", func(b *ratelimit.Bucket) { b.Cost = 2 })},
		{change("a", func(b *ratelimit.Bucket) { b.Op = ratelimit.Peek })},
		{change("a", func(b *ratelimit.Bucket) { b.Limits = storetest.TB(101, 1./(24*60)) })},
		{change("a", func(b *ratelimit.Bucket) { b.Limits.Rate *= 2 })},
		{base, change("b", func(*ratelimit.Bucket) {})},
		{change("b", func(*ratelimit.Bucket) {}), base},
	}
	for _, op := range []ratelimit.Op{ratelimit.Refund, ratelimit.Force, ratelimit.Reset, ratelimit.Put, ratelimit.Undo} {
		b := change(strconv.Itoa(int(op)), func(b *ratelimit.Bucket) { b.Op = op })
		calls = append(calls, []ratelimit.Bucket{b}, []ratelimit.Bucket{b})
	}
	shadow := change("shadow", func(b *ratelimit.Bucket) { b.Shadow = true })
	calls = append(calls, []ratelimit.Bucket{shadow}, []ratelimit.Bucket{shadow}, []ratelimit.Bucket{base, shadow}, []ratelimit.Bucket{base, shadow})
	for range 20 {
		require.NoError(t, server.Pause())
		var wg sync.WaitGroup
		var calling atomic.Int64
		for _, c := range calls {
			wg.Go(func() {
				calling.Add(1)
				for _, r := range s.Acquire(context.Background(), c, nil) {
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
			})
		}
		require.Eventually(t, func() bool { return calling.Load() == int64(len(calls)) }, patient, time.Millisecond)
		require.NoError(t, server.Resume())
		wg.Wait()
	}
	require.Zero(t, merged.Load())
}
