package redisbackend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

func instanceName(i int) string { return fmt.Sprintf("instance-%07d", i) }

// beat expects that these instances live.
func beat(t *testing.T, s *redisbackend.Store, i int, life time.Duration, want ...int) {
	t.Helper()
	got, err := s.Beat(t.Context(), instanceName(i), life)
	require.NoError(t, err)
	names := make([]string, len(want))
	for j, n := range want {
		names[j] = instanceName(n)
	}
	require.ElementsMatch(t, names, got)
}

func TestBeat(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t, redistest.Options{MovingClock: true})
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}})
	const life = 6 * time.Second
	beat(t, s, 1, life, 1)
	beat(t, s, 2, life, 1, 2)
	beat(t, s, 1, life, 1, 2)
	keys, err := server.Do(t.Context(), "KEYS", "*")
	require.NoError(t, err)
	require.Equal(t, []any{"rl:{instances}"}, keys)
	ttl, err := server.Do(t.Context(), "PTTL", "rl:{instances}")
	require.NoError(t, err)
	require.LessOrEqual(t, ttl.(int64), 2*life.Milliseconds())
	require.Positive(t, ttl.(int64))

	require.NoError(t, server.SetClock(5*time.Second))
	beat(t, s, 2, life, 1, 2)
	require.NoError(t, server.SetClock(7*time.Second))
	beat(t, s, 2, life, 2)
	require.NoError(t, server.SetClock(-time.Hour))
	beat(t, s, 1, life, 1)
	_, err = server.Do(t.Context(), "SET", "rl:{instances}", "something else")
	require.NoError(t, err)
	beat(t, s, 1, life, 1)
}

// TestBeatIsBounded: however many have been, a beat costs what 1,024 cost.
func TestBeatIsBounded(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}})
	for i := range 1100 {
		_, err := s.Beat(t.Context(), instanceName(i), time.Hour)
		require.NoError(t, err)
	}
	names, err := s.Beat(t.Context(), instanceName(9999), time.Hour)
	require.NoError(t, err)
	require.Len(t, names, 1024)
	require.Contains(t, names, instanceName(9999))
}

func TestBeatOnACluster(t *testing.T) {
	cluster := shared.Cluster(t)
	s, other := open(t, redisbackend.Options{URLs: cluster.URLs()}), open(t, redisbackend.Options{URLs: cluster.URLs()})
	_, err := s.Beat(t.Context(), instanceName(1), time.Minute)
	require.NoError(t, err)
	names, err := other.Beat(t.Context(), instanceName(2), time.Minute)
	require.NoError(t, err)
	require.Subset(t, names, []string{instanceName(1), instanceName(2)})
}

func TestBeatFails(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t)
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}})
	_, err := s.Beat(t.Context(), "short", time.Minute)
	require.ErrorContains(t, err, "the name of an instance has 16 bytes, not 5")

	beat(t, s, 1, time.Minute, 1)
	server.Kill()
	for range 12 { // more than a pool bears before it dials by itself
		_, err = s.Beat(t.Context(), instanceName(1), time.Minute)
		var e *redisbackend.Error
		require.ErrorAs(t, err, &e)
	}
	require.NoError(t, server.Restart(t.Context()))
	beat(t, s, 1, time.Minute, 1)

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Beat(ended, instanceName(1), time.Minute)
	require.ErrorIs(t, err, context.Canceled)
	s.Close()
	_, err = s.Beat(t.Context(), instanceName(1), time.Minute)
	require.Equal(t, redisbackend.ReasonClosed, redisbackend.ReasonOf(err))
}
