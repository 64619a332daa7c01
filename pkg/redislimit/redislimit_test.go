package redislimit_test

import (
	"cmp"
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/redislimit"
)

const policies = `
policies:
  - {id: local, match: {mode: local}, key: [user], algorithm: token-bucket, capacity: 10, refillPerDay: 1, onStoreFailure: local}
  - {id: open, match: {mode: open}, key: [user], algorithm: token-bucket, capacity: 10, refillPerDay: 1, onStoreFailure: open}
  - {id: closed, match: {mode: closed}, key: [user], algorithm: token-bucket, capacity: 10, refillPerDay: 1, onStoreFailure: closed}
`

const timeout = 200 * time.Millisecond // for machines that are busy

// instance is a service on a store of its own.
type instance struct {
	*ratelimit.Limiter
	t     *testing.T
	store *redislimit.Store
}

func start(t *testing.T, o redislimit.Options) *instance {
	t.Helper()
	o.Redis.Timeout = cmp.Or(o.Redis.Timeout, timeout)
	store, err := redislimit.New(o)
	require.NoError(t, err)
	require.NoError(t, store.Start(t.Context()))
	t.Cleanup(store.Close)
	file, err := policy.Parse("policies.yaml", []byte(policies))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	return &instance{ratelimit.New(ratelimit.Options{Store: store, Policies: set}), t, store}
}

func (i *instance) check(mode string) (allowed bool, source ratelimit.Source) {
	i.t.Helper()
	d, err := i.Check(i.t.Context(), ratelimit.Request{Attributes: map[string]string{"mode": mode, "user": "alice"}})
	require.NoError(i.t, err)
	require.Len(i.t, d.Checks, 1)
	return d.Allowed, d.Checks[0].Result.Source
}

// TestFailureModes: while Redis does not answer, each policy does as it says, and Redis is charged afterwards for what was admitted.
func TestFailureModes(t *testing.T) {
	server := redistest.StartStandalone(t)
	var unanswered, opened atomic.Int64
	i := start(t, redislimit.Options{
		Redis:        redisbackend.Options{URLs: []string{server.URL()}},
		Instances:    2,
		OnUnanswered: func(*ratelimit.Bucket, error) { unanswered.Add(1) },
		OnTransition: func(tr fallback.Transition) {
			if tr.To == fallback.StateOpen {
				opened.Add(1)
			}
		},
		OnAbsent: func(err error) { t.Error("Redis is there:", err) },
	})
	require.True(t, i.store.Fleet.Met())
	for _, mode := range []string{"local", "open", "closed"} {
		allowed, source := i.check(mode)
		require.True(t, allowed)
		require.Equal(t, ratelimit.FromStore, source)
	}
	require.NoError(t, server.Pause())
	admitted := 0
	for range 12 {
		allowed, source := i.check("local")
		require.Equal(t, ratelimit.FromLocal, source)
		if allowed {
			admitted++
		}
		allowed, source = i.check("closed")
		require.False(t, allowed)
		require.Equal(t, ratelimit.FromClosed, source)
		allowed, source = i.check("open")
		require.True(t, allowed)
		require.Equal(t, ratelimit.FromOpen, source)
	}
	require.Contains(t, []int{4, 5}, admitted, "half of the 9 that were left, or of the 10 there can be")
	require.Positive(t, unanswered.Load())
	require.Positive(t, opened.Load())
	require.NoError(t, server.Resume())
	require.Eventually(t, func() bool {
		_, source := i.check("closed")
		return source == ratelimit.FromStore
	}, 20*time.Second, 10*time.Millisecond)
	left := 0
	for range 12 {
		if allowed, _ := i.check("local"); allowed {
			left++
		}
	}
	require.LessOrEqual(t, left, 9-admitted, "what was admitted is charged")
	_, source := i.check("local")
	require.Equal(t, ratelimit.FromCache, source)
}

// TestCallersThatLeave: those who do not wait for Redis do not keep others from it.
func TestCallersThatLeave(t *testing.T) {
	const timeout = 3 * time.Second
	server := redistest.StartStandalone(t)
	var opened atomic.Int64
	i := start(t, redislimit.Options{
		Redis:        redisbackend.Options{URLs: []string{server.URL()}, Timeout: timeout},
		OnTransition: func(fallback.Transition) { opened.Add(1) },
	})
	require.NoError(t, server.Pause())
	left, leave := context.WithCancel(t.Context())
	time.AfterFunc(timeout*5/8, leave) // who leaves before half of it does not count anyway
	var all sync.WaitGroup
	for n := range 10 {
		all.Go(func() {
			d, err := i.Check(left, ratelimit.Request{Attributes: map[string]string{"mode": "closed", "user": strconv.Itoa(n)}})
			require.NoError(t, err)
			require.Equal(t, ratelimit.FromClosed, d.Checks[0].Result.Source)
		})
	}
	all.Wait()
	require.Zero(t, opened.Load())
	require.NoError(t, server.Resume())
}

// TestWithoutRedis: a Redis that is not there is told of and waited for, and its policies decide meanwhile.
func TestWithoutRedis(t *testing.T) {
	var absent, failures atomic.Int64
	i := start(t, redislimit.Options{
		Redis: redisbackend.Options{
			URLs:      []string{"redis://127.0.0.1:1"},
			OnFailure: func(*redisbackend.Failure) { failures.Add(1) },
		},
		OnAbsent: func(error) { absent.Add(1) },
	})
	require.Equal(t, int64(1), absent.Load())
	require.Zero(t, failures.Load(), "what Start finds out is not told")
	require.False(t, i.store.Fleet.Met())
	allowed, source := i.check("closed")
	require.False(t, allowed)
	require.Equal(t, ratelimit.FromClosed, source)
	allowed, source = i.check("local")
	require.True(t, allowed)
	require.Equal(t, ratelimit.FromLocal, source)
	require.Positive(t, failures.Load())
	i.store.Close()
	allowed, _ = i.check("closed")
	require.False(t, allowed, "closed twice, and used afterwards: still an answer")
}

func TestBadOptions(t *testing.T) {
	for name, tt := range map[string]struct {
		redis redisbackend.Options
		want  string
	}{
		"no URL":  {redisbackend.Options{}, "redis: no URL"},
		"no mode": {redisbackend.Options{URLs: []string{"redis://x"}, Mode: "clutser"}, `"clutser"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := redislimit.New(redislimit.Options{Redis: tt.redis})
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// TestEndsBeforeItBegan: a Store that could not start, or was never started, can be closed.
func TestEndsBeforeItBegan(t *testing.T) {
	store, err := redislimit.New(redislimit.Options{Redis: redisbackend.Options{
		URLs: []string{"redis://127.0.0.1:1"}, PasswordFile: "nowhere",
	}})
	require.NoError(t, err)
	require.ErrorContains(t, store.Start(t.Context()), "password file") // not its name: some give the password there
	store.Close()
}
