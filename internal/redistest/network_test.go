package redistest_test

import (
	"context"
	"net"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func TestNetworkCutsAZoneOff(t *testing.T) {
	t.Parallel()
	_ = exec.Command("ip", "netns", "add", "erls4194305").Run() // as a program leaves it that was killed: no process has that number
	n := redistest.StartNetwork(t)
	left, err := exec.Command("ip", "netns", "list").Output()
	require.NoError(t, err)
	require.NotContains(t, string(left), "erls4194305")

	c := redistest.StartCluster(t, redistest.Options{Primaries: 3, Network: n})
	here, away := c.Nodes[0], c.Nodes[1]
	require.Equal(t, []string{"a", "b"}, []string{here.Zone, away.Zone})
	require.NoError(t, c.CutOff(t.Context()))
	require.True(t, here.Running())
	require.False(t, away.Running())
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = away.Do(ctx, "PING")
	var timeout net.Error
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout(), "it does not even refuse: %v", err)
	promoted, err := c.AwaitPromotion(t.Context(), away)
	require.NoError(t, err)
	require.Equal(t, "a", promoted.Zone)
	require.NoError(t, c.Rejoin(t.Context()))
	require.NoError(t, c.WaitReady(t.Context()))
	replicas, err := c.Replicas(t.Context(), promoted)
	require.NoError(t, err)
	require.Contains(t, replicas, away)
}
