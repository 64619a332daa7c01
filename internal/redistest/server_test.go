package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func TestStandalone(t *testing.T) {
	s := redistest.StartStandalone(t)
	_, err := s.Do(t.Context(), "SET", "key", "a value\r\nof two lines")
	require.NoError(t, err)
	got, err := s.Do(t.Context(), "GET", "key")
	require.NoError(t, err)
	require.Equal(t, "a value\r\nof two lines", got)

	_, err = s.Do(t.Context(), "INCR", "key")
	require.ErrorAs(t, err, new(redistest.ReplyError))

	require.NoError(t, s.Restart(t.Context()))
	got, err = s.Do(t.Context(), "GET", "key")
	require.NoError(t, err)
	require.Nil(t, got, "a restart keeps no data")
}

func TestMovingClock(t *testing.T) {
	s := redistest.StartStandalone(t, redistest.Options{MovingClock: true})
	_, err := s.Do(t.Context(), "SET", "key", "value", "EX", "100")
	require.NoError(t, err)
	for _, offset := range []time.Duration{0, 5 * time.Second, -time.Hour, 24 * time.Hour, 0} {
		require.NoError(t, s.SetClock(offset))
		got, err := s.Time(t.Context())
		require.NoError(t, err)
		require.WithinDuration(t, time.Now().Add(offset), got, 2*time.Second)
	}
}
