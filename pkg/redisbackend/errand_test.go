package redisbackend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

var echo = redisbackend.NewScript("return {KEYS[1], KEYS[2], ARGV[1]}")

func TestRun(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}})
	reply, err := s.Run(t.Context(), echo, []string{"rl:{x}:1", "rl:{x}:2"}, "hello")
	require.NoError(t, err)
	require.Equal(t, []any{"rl:{x}:1", "rl:{x}:2", "hello"}, reply)
	_, err = s.Run(t.Context(), redisbackend.NewScript("return redis.error_reply('OOM no room')"), []string{"rl:{x}"})
	require.Equal(t, redisbackend.ReasonOOM, redisbackend.ReasonOf(err))

	server.Kill()
	_, err = s.Run(t.Context(), echo, []string{"rl:{x}"})
	var e *redisbackend.Error
	require.ErrorAs(t, err, &e)
	s.Close()
	_, err = s.Run(t.Context(), echo, []string{"rl:{x}"})
	require.Equal(t, redisbackend.ReasonClosed, redisbackend.ReasonOf(err))
}

func TestRunOnACluster(t *testing.T) {
	s := open(t, redisbackend.Options{URLs: shared.Cluster(t).URLs()})
	for _, key := range []string{"rl:{a}", "rl:{b}", "rl:{c}", "rl:{d}"} {
		reply, err := s.Run(t.Context(), echo, []string{key, key}, "x")
		require.NoError(t, err)
		require.Equal(t, []any{key, key, "x"}, reply)
	}
}

// TestAcquirePatiently: who is in no hurry waits longer than a decision.
func TestAcquirePatiently(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: time.Millisecond, ConnectionTimeout: 10 * time.Second})
	b := []ratelimit.Bucket{{Key: policy.NewKey(policy.Part{}, "a"), Limits: storetest.TB(5, 1e-9), Op: ratelimit.Put, Cost: 2}}
	require.NoError(t, server.Pause())
	hurried := redisbackend.ReasonOf(s.Acquire(t.Context(), b, nil)[0].Err)
	require.Contains(t, []redisbackend.Reason{redisbackend.ReasonTimeout, redisbackend.ReasonUnsent}, hurried)
	answered := make(chan ratelimit.Result)
	go func() { answered <- s.AcquirePatiently(t.Context(), b, nil)[0] }()
	select {
	case r := <-answered:
		t.Fatal("did not wait", r)
	case <-time.After(50 * time.Millisecond):
	}
	require.NoError(t, server.Resume())
	r := <-answered
	require.NoError(t, r.Err)
	require.Equal(t, 3.0, r.Remaining)
}
