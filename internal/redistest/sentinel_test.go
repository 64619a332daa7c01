package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func TestSentinel(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinel(t, redistest.Options{Sentinels: 3, Password: "secret"})
	require.Len(t, w.SentinelAddrs(), 3)
	primary, err := w.Primary(t.Context())
	require.NoError(t, err)
	require.Same(t, w.Nodes[0], primary)
	_, err = primary.Do(t.Context(), "SET", "key", "value")
	require.NoError(t, err)

	replicated, err := primary.Do(t.Context(), "WAIT", 1, 10_000)
	require.NoError(t, err)
	require.EqualValues(t, 1, replicated)

	promoted, err := w.Failover(t.Context())
	require.NoError(t, err)
	require.Same(t, w.Nodes[1], promoted)
	got, err := promoted.Do(t.Context(), "GET", "key")
	require.NoError(t, err)
	require.Equal(t, "value", got)
}

func TestSentinelReplacesAKilledPrimary(t *testing.T) {
	t.Parallel()
	w := redistest.StartSentinel(t, redistest.Options{})
	w.Nodes[0].Kill()
	promoted, err := w.AwaitPromotion(t.Context(), w.Nodes[0])
	require.NoError(t, err)
	require.Same(t, w.Nodes[1], promoted)
}
