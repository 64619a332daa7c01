package redistest_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// TestCluster does all that can be done to a cluster, on one: a start takes two seconds.
func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, redistest.Options{Primaries: 4, ReplicasEach: 1, Password: `p@ss :/,#%"word`, MovingClock: true, Config: []string{"enable-debug-command yes"}})
	t.Run("even slots, replicas in the other zone", func(t *testing.T) { testLayout(t, c) })
	t.Run("slot half moved", func(t *testing.T) { testMigration(t, c) })
	t.Run("failover", func(t *testing.T) { testFailover(t, c) })
	t.Run("kill and restart", func(t *testing.T) { testKill(t, c) })
	t.Run("pause", func(t *testing.T) { testPause(t, c) })
	t.Run("in step", func(t *testing.T) { testInStep(t, c) })
}

func testLayout(t *testing.T, c *redistest.Cluster) {
	primaries, err := c.Primaries(t.Context())
	require.NoError(t, err)
	require.Equal(t, c.Nodes[:4], primaries)
	zones := map[string]int{}
	for i, primary := range primaries {
		zones[primary.Zone]++
		replicas, err := c.Replicas(t.Context(), primary)
		require.NoError(t, err)
		require.Equal(t, c.Nodes[4+i:5+i], replicas)
		require.NotEqual(t, primary.Zone, replicas[0].Zone)
		for _, slot := range []int{i * 4096, i*4096 + 4095} {
			owner, err := c.Owner(t.Context(), slot)
			require.NoError(t, err)
			require.Same(t, primary, owner)
		}
	}
	require.Equal(t, map[string]int{"a": 2, "b": 2}, zones)
	require.Len(t, c.URLs(), 8)
}

func testMigration(t *testing.T, c *redistest.Cluster) {
	slot, err := c.Slot(t.Context(), "{tag}1")
	require.NoError(t, err)
	from, err := c.Primary(t.Context(), "{tag}1")
	require.NoError(t, err)
	to := c.Nodes[0]
	if from == to {
		to = c.Nodes[1]
	}
	for i := range 3 {
		_, err := from.Do(t.Context(), "SET", fmt.Sprintf("{tag}%d", i), i)
		require.NoError(t, err)
	}

	m, err := c.MigrateSlot(t.Context(), slot, to)
	require.NoError(t, err)
	require.NoError(t, m.Move(t.Context(), "{tag}1"))
	requireReplyError(t, from, fmt.Sprintf("ASK %d %s", slot, to.Addr()), "GET", "{tag}1")
	requireReplyError(t, from, "TRYAGAIN", "MGET", "{tag}0", "{tag}1")
	require.NoError(t, m.Abort(t.Context()))
	got, err := from.Do(t.Context(), "MGET", "{tag}0", "{tag}1", "{tag}2")
	require.NoError(t, err)
	require.Equal(t, []any{"0", "1", "2"}, got)

	m, err = c.MigrateSlot(t.Context(), slot, to)
	require.NoError(t, err)
	require.NoError(t, m.Finish(t.Context()))
	requireReplyError(t, from, fmt.Sprintf("MOVED %d %s", slot, to.Addr()), "GET", "{tag}1")
	owner, err := c.Owner(t.Context(), slot)
	require.NoError(t, err)
	require.Same(t, to, owner)
	got, err = to.Do(t.Context(), "MGET", "{tag}0", "{tag}1", "{tag}2")
	require.NoError(t, err)
	require.Equal(t, []any{"0", "1", "2"}, got)
	_, err = c.MigrateSlot(t.Context(), slot, to)
	require.ErrorContains(t, err, "already")
}

func requireReplyError(t *testing.T, s *redistest.Server, want string, args ...any) {
	t.Helper()
	_, err := s.Do(t.Context(), args...)
	var reply redistest.ReplyError
	require.True(t, errors.As(err, &reply), "got %v", err)
	require.Contains(t, reply.Error(), want)
}

func testFailover(t *testing.T, c *redistest.Cluster) {
	promoted, err := c.Failover(t.Context(), c.Nodes[1])
	require.NoError(t, err)
	require.Same(t, c.Nodes[5], promoted)
	replicas, err := c.Replicas(t.Context(), promoted)
	require.NoError(t, err)
	require.Equal(t, c.Nodes[1:2], replicas)
}

func testKill(t *testing.T, c *redistest.Cluster) {
	old := c.Nodes[2]
	old.Kill()
	require.False(t, old.Running())
	promoted, err := c.AwaitPromotion(t.Context(), old)
	require.NoError(t, err)
	require.Same(t, c.Nodes[6], promoted)

	require.NoError(t, old.Restart(t.Context()))
	require.NoError(t, c.WaitReady(t.Context()))
	replicas, err := c.Replicas(t.Context(), promoted)
	require.NoError(t, err)
	require.Equal(t, []*redistest.Server{old}, replicas)
}

func testPause(t *testing.T, c *redistest.Cluster) {
	old := c.Nodes[3]
	require.NoError(t, old.Pause())
	require.False(t, old.Running())
	promoted, err := c.AwaitPromotion(t.Context(), old)
	require.NoError(t, err)
	require.Same(t, c.Nodes[7], promoted)
	require.NoError(t, old.Resume())
	require.NoError(t, c.WaitReady(t.Context()))
}

// testInStep: a cluster is not ready as long as a replica has not got what its primary has sent, as for up to a second after a full synchronisation.
func testInStep(t *testing.T, c *redistest.Cluster) {
	const key = "{tag}in-step"
	primary, err := c.Primary(t.Context(), key)
	require.NoError(t, err)
	replicas, err := c.Replicas(t.Context(), primary)
	require.NoError(t, err)
	for _, command := range [][]any{{"DEBUG", "CHANGE-REPL-ID"}, {"CLIENT", "KILL", "TYPE", "replica"}} {
		_, err := primary.Do(t.Context(), command...)
		require.NoError(t, err)
	}
	replid := func(node *redistest.Server) string {
		info, err := node.Info(t.Context(), "replication")
		require.NoError(t, err)
		return info["master_link_status"] + info["master_replid"]
	}
	require.Eventually(t, func() bool { return replid(replicas[0]) == "up"+replid(primary) }, 30*time.Second, time.Millisecond)
	_, err = primary.Do(t.Context(), "SET", key, "value")
	require.NoError(t, err)
	require.NoError(t, c.WaitReady(t.Context()))
	for _, node := range []*redistest.Server{primary, replicas[0]} {
		keys, err := node.Do(t.Context(), "KEYS", key)
		require.NoError(t, err)
		require.Equal(t, []any{key}, keys, "%s", node.Addr())
	}
}
