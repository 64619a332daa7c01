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
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// TestCluster is what needs a cluster.
func TestCluster(t *testing.T) {
	cluster := shared.Cluster(t)
	var merged merges
	s := open(t, redisbackend.Options{URLs: cluster.URLs()[:2], Timeout: patient, OnCall: merged.add})
	for _, test := range []struct {
		name   string
		run    func(*testing.T, *redistest.Cluster, *redisbackend.Store)
		merges bool // calls are seen to be merged
	}{
		{"exact under concurrency", func(t *testing.T, c *redistest.Cluster, _ *redisbackend.Store) { exact(t, c.URLs()) }, false},
		{"one URL is enough", clusterByOneURL, false},
		{"slots are those of Redis", slotsAgree, false},
		{"TestField a drained bucket in another slot: the other is charged what was admitted", acrossSlots, true},
		{"denied across slots: results without the call", deniedAcrossSlots, false},
		{"shadow buckets of other slots", shadowAcrossSlots, false},
		{"a slot that moves: ASK, TRYAGAIN, MOVED", slotMoves, true},
		{"scripts flushed on all nodes, a slot that moves", flushedWhileMoving, true},
		{"a stopped node delays its own keys only", stoppedNode, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			merged.Store(0)
			test.run(t, cluster, s)
			t.Logf("%d calls merged", merged.Load())
			require.True(t, !test.merges || merged.Load() > 0)
		})
	}
}

func clusterByOneURL(t *testing.T, c *redistest.Cluster, _ *redisbackend.Store) {
	s := open(t, redisbackend.Options{URLs: c.URLs()[3:], Timeout: patient})
	for i := range 20 {
		require.NoError(t, one(t.Context(), s, take(key("one url "+strconv.Itoa(i), "p"))).Err)
	}
}

func slotsAgree(t *testing.T, c *redistest.Cluster, s *redisbackend.Store) {
	for i := range 100 {
		k := key("slot "+strconv.Itoa(i), "p")
		want, err := c.Slot(t.Context(), k.String())
		require.NoError(t, err)
		require.Equal(t, want, redisbackend.Slot(k.Bytes()))
		owner, err := c.Owner(t.Context(), want)
		require.NoError(t, err)
		require.Equal(t, owner.Addr(), s.Node(k.Bytes()))
	}
}

// keysApart are keys in different slots on different nodes.
func keysApart(t *testing.T, s *redisbackend.Store, name string, n int) []policy.Key {
	t.Helper()
	var keys []policy.Key
	nodes := map[string]bool{}
	for i := 0; len(keys) < n; i++ {
		k := key(name+strconv.Itoa(i), "policy"+strconv.Itoa(len(keys)))
		if node := s.Node(k.Bytes()); !nodes[node] {
			nodes[node] = true
			keys = append(keys, k)
		}
		require.Less(t, i, 1000)
	}
	return keys
}

func acrossSlots(t *testing.T, c *redistest.Cluster, s *redisbackend.Store) {
	other := open(t, redisbackend.Options{URLs: c.URLs(), Timeout: patient})
	for i, l := range hundred {
		keys := keysApart(t, s, "across"+strconv.Itoa(i), 3)
		small, log, big := take(keys[0]), take(keys[1]), take(keys[2])
		small.Limits = l
		log.Limits = storetest.SL(5000, time.Hour)
		big.Limits = storetest.TB(5000, 1./(24*60))
		admitted, failed := crowd([]ratelimit.Store{s, other}, 200, 5, func(n int) []ratelimit.Bucket {
			if n%2 == 0 {
				return []ratelimit.Bucket{small, log, big}
			}
			return []ratelimit.Bucket{big, small, log}
		})
		require.Zero(t, failed)
		require.LessOrEqual(t, admitted, 100)
		require.Positive(t, admitted)
		for j, b := range []ratelimit.Bucket{small, log, big} {
			b.Op = ratelimit.Peek
			spent := b.Limits.Capacity - one(t.Context(), s, b).Remaining
			require.InDelta(t, admitted, spent, 0.01, "bucket %d is charged what was admitted", j)
		}
	}
}

func deniedAcrossSlots(t *testing.T, _ *redistest.Cluster, s *redisbackend.Store) {
	keys := keysApart(t, s, "denied", 3)
	drained, tokens, log := take(keys[0]), take(keys[1]), take(keys[2])
	drained.Cost, tokens.Cost, log.Cost = 100, 7, 3
	log.Limits = storetest.SL(10, time.Hour)
	require.Equal(t, ratelimit.Admitted, one(t.Context(), s, drained).Outcome)
	for range 3 {
		r := s.Acquire(t.Context(), []ratelimit.Bucket{tokens, drained, log}, nil)
		require.Equal(t, ratelimit.Denied, r[1].Outcome)
		require.Equal(t, ratelimit.Admitted, r[0].Outcome)
		require.Equal(t, 100.0, r[0].Remaining)
		require.Equal(t, ratelimit.Admitted, r[2].Outcome)
		require.Equal(t, 10.0, r[2].Remaining)
		require.Zero(t, r[2].Reset)
	}
	require.Equal(t, 7.0, one(t.Context(), s, log).Remaining)
	r := s.Acquire(t.Context(), []ratelimit.Bucket{tokens, drained, log}, nil)
	require.Equal(t, 7.0, r[2].Remaining)
	require.Positive(t, r[2].Reset)
}

func shadowAcrossSlots(t *testing.T, _ *redistest.Cluster, s *redisbackend.Store) {
	keys := keysApart(t, s, "shadow", 2)
	enforced, shadow := take(keys[0]), take(keys[1])
	enforced.Limits, shadow.Shadow = storetest.TB(2, 1e-9), true
	for i := range 4 {
		r := s.Acquire(t.Context(), []ratelimit.Bucket{shadow, enforced}, nil)
		require.Equal(t, i < 2, r[1].Outcome == ratelimit.Admitted)
		require.Equal(t, ratelimit.Admitted, r[0].Outcome)
		require.InDelta(t, []float64{99, 98, 98, 98}[i], r[0].Remaining, 0.01, "only looked at when denied")
	}
	shadow.Op = ratelimit.Peek
	require.InDelta(t, 98, one(t.Context(), s, shadow).Remaining, 0.01, "charged for what was admitted only")
	require.InDelta(t, 98, s.Acquire(t.Context(), []ratelimit.Bucket{shadow}, nil)[0].Remaining, 0.01)
}

// callWhile calls about two buckets of one slot again and again while something happens, and returns how many calls were answered. None may
// fail.
func callWhile(t *testing.T, s ratelimit.Store, buckets []ratelimit.Bucket, happens func()) int {
	t.Helper()
	stop := make(chan struct{})
	var calls atomic.Int64
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, r := range s.Acquire(context.Background(), buckets, nil) {
					if r.Err != nil {
						t.Error(r.Err)
					}
				}
				calls.Add(1)
			}
		})
	}
	happens()
	close(stop)
	wg.Wait()
	return int(calls.Load())
}

// elsewhere is a primary that has not got a slot.
func elsewhere(ctx context.Context, c *redistest.Cluster, slot int) (*redistest.Server, error) {
	owner, err := c.Owner(ctx, slot)
	if err != nil {
		return nil, err
	}
	primaries, err := c.Primaries(ctx)
	if err != nil {
		return nil, err
	}
	return primaries[(slices.Index(primaries, owner)+1)%len(primaries)], nil
}

func slotMoves(t *testing.T, c *redistest.Cluster, s *redisbackend.Store) {
	moveSlot(t, c, s, "moves", func() {})
}

func flushedWhileMoving(t *testing.T, c *redistest.Cluster, s *redisbackend.Store) {
	moveSlot(t, c, s, "flushed", func() {
		for _, n := range c.Nodes {
			_, err := n.Do(context.Background(), "SCRIPT", "FLUSH")
			require.NoError(t, err)
		}
	})
}

func moveSlot(t *testing.T, c *redistest.Cluster, s *redisbackend.Store, tag string, between func()) {
	first, second := take(key(tag, "first")), take(key(tag, "second"))
	first.Limits, second.Limits = storetest.TB(1e9, 1e-9), storetest.SL(100_000, time.Hour)
	buckets := []ratelimit.Bucket{first, second}
	slot := redisbackend.Slot(first.Key.Bytes())
	other, err := elsewhere(t.Context(), c, slot)
	require.NoError(t, err)
	s.Acquire(t.Context(), buckets, nil)
	calls := callWhile(t, s, buckets, func() {
		m, err := c.MigrateSlot(t.Context(), slot, other)
		require.NoError(t, err)
		between()
		require.NoError(t, m.Move(t.Context(), first.Key.String())) // from now on TRYAGAIN
		time.Sleep(5 * time.Millisecond)
		between()
		require.NoError(t, m.Move(t.Context(), second.Key.String())) // ASK
		time.Sleep(5 * time.Millisecond)
		between()
		require.NoError(t, m.Finish(t.Context())) // MOVED
		between()
	})
	for _, b := range buckets {
		b.Op = ratelimit.Peek
		require.InDelta(t, calls+1, b.Limits.Capacity-one(t.Context(), s, b).Remaining, 0.01)
	}
	require.Eventually(t, func() bool {
		s.Acquire(context.Background(), buckets, nil) // is told MOVED
		return s.Node(first.Key.Bytes()) == other.Addr()
	}, patient, time.Millisecond, "the map of the slots is loaded anew")
}

func stoppedNode(t *testing.T, c *redistest.Cluster, _ *redisbackend.Store) {
	o := redisbackend.Options{URLs: c.URLs(), Timeout: 2 * time.Second, ConnectionTimeout: patient}
	calls, lost := 1, int64(0)
	if storetest.Long() { // a healthy node needs more than 20 ms now and then
		o.Timeout, o.ConnectionTimeout = 20*time.Millisecond, 0
		calls, lost = 20, 15
	}
	nodeTimeout(t, c, time.Minute)
	s := open(t, o)
	keys := keysApart(t, s, "stopped", 4)
	for _, k := range keys {
		eventually(t, s, take(k))
	}
	var stopped *redistest.Server
	for _, n := range c.Nodes {
		if n.Addr() == s.Node(keys[0].Bytes()) {
			stopped = n
		}
	}
	require.NoError(t, stopped.Pause())
	defer func() { require.NoError(t, stopped.Resume()) }()
	done := make(chan time.Duration)
	go func() { done <- slowest(s, take(keys[0]), 20, calls) }()
	var failed atomic.Int64
	var wg sync.WaitGroup
	for _, k := range keys[1:] {
		wg.Go(func() {
			for range 500 {
				if one(context.Background(), s, take(k)).Err != nil {
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Less(t, <-done, o.Timeout+slack())
	require.LessOrEqual(t, failed.Load(), lost, "of 1,500 calls to the other nodes")

	small, big := take(keys[0]), take(keys[1])
	r := s.Acquire(t.Context(), []ratelimit.Bucket{small, big}, nil)
	require.Error(t, r[0].Err)
	require.NoError(t, r[1].Err)
	require.NotZero(t, r[1].Outcome, "the healthy node still decides")
}
