package redistest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func TestConnect(t *testing.T) {
	s := redistest.StartStandalone(t, redistest.Options{Password: "a secret"})
	other, err := redistest.Connect(s.URL())
	require.NoError(t, err)
	reply, err := other.Do(t.Context(), "PING")
	require.NoError(t, err)
	require.Equal(t, "PONG", reply)

	other, err = redistest.Connect(s.Addr())
	require.NoError(t, err)
	_, err = other.Do(t.Context(), "PING")
	require.ErrorContains(t, err, "NOAUTH")

	for _, address := range []string{"", "host", "redis://:secret@host", "rediss://:secret@host:1x"} {
		_, err := redistest.Connect(address)
		require.Error(t, err, address)
		require.NotContains(t, err.Error(), "secret")
	}
}
