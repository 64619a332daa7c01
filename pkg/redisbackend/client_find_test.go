package redisbackend_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// TestAutoModeWithoutTheRightToAsk finds out what one URL leads to, as a user that may not ask CLUSTER INFO.
func TestAutoModeWithoutTheRightToAsk(t *testing.T) {
	cluster := shared.Cluster(t)
	server := redistest.StartStandalone(t)
	as := func(servers []*redistest.Server, user string, rights ...any) *redisbackend.Store {
		t.Helper()
		for _, s := range servers {
			_, err := s.Do(t.Context(), append([]any{"ACL", "SETUSER", user, "on", ">secret", "~*", "resetchannels"}, rights...)...)
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = s.Do(t.Context(), "ACL", "DELUSER", user) })
		}
		return open(t, redisbackend.Options{URLs: []string{"redis://" + user + ":secret@" + servers[0].Addr()}, Timeout: patient})
	}
	scripts := []any{"-@all", "+evalsha", "+script|load", "+@read", "+@write", "+time", "+asking"}

	t.Run("a cluster: buckets of several slots in one call", func(t *testing.T) {
		s := as(cluster.Nodes, "slots", append(scripts, "+cluster|slots")...)
		results := s.Acquire(t.Context(), []ratelimit.Bucket{take(key("a", "auto")), take(key("b", "auto")), take(key("c", "auto"))}, nil)
		for _, r := range results {
			require.NoError(t, r.Err)
		}
	})
	t.Run("a cluster whose slots it may not see either: never taken for one server", func(t *testing.T) {
		s := as(cluster.Nodes, "noslots", scripts...)
		for range 3 {
			r := one(t.Context(), s, take(key("a", "auto")))
			require.Equal(t, redisbackend.ReasonNoNode, reason(r))
			require.ErrorContains(t, r.Err, "NOPERM")
			require.ErrorContains(t, r.Err, "cluster|slots")
		}
	})
	t.Run("one server", func(t *testing.T) {
		s := as([]*redistest.Server{server}, "single", scripts...)
		require.NoError(t, one(t.Context(), s, take(key("a", "auto"))).Err)
	})
}

// TestAutoModeWithoutAGreeting is a server that tells nothing about itself: it says which option is missing.
func TestAutoModeWithoutAGreeting(t *testing.T) {
	server := redistest.StartStandalone(t, redistest.Options{Config: []string{
		"rename-command HELLO nohello", "user mute on >secret ~* -@all +evalsha +script|load +@read +@write +time",
	}})
	url := "redis://mute:secret@" + server.Addr()
	s := open(t, redisbackend.Options{URLs: []string{url}, Timeout: time.Second})
	r := one(t.Context(), s, take(key("a", "mute")))
	require.Equal(t, redisbackend.ReasonNoNode, reason(r))
	require.ErrorContains(t, r.Err, "the mode must be given")
	s = open(t, redisbackend.Options{URLs: []string{url}, Timeout: time.Second, Mode: redisbackend.ModeStandalone})
	require.NoError(t, one(t.Context(), s, take(key("a", "mute"))).Err)
}
