package app

import (
	"os"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGCPercent(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 10 << 20: 400, 64 << 20: 400, 128 << 20: 200, 256 << 20: 100, 10 << 30: 100} {
		require.Equal(t, want, gcPercent(live), "%d bytes", live)
	}
}

func TestGCIsPacedAndLeftAsItWas(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	t.Run("by the service", func(t *testing.T) {
		t.Setenv("GOGC", "") // so that it is put back afterwards
		require.NoError(t, os.Unsetenv("GOGC"))
		var a App
		a.startGC()
		require.Equal(t, lazyGC, debug.SetGCPercent(lazyGC))
		require.NoError(t, a.closers.close(t.Context()))
		require.Equal(t, 77, debug.SetGCPercent(77))
	})
	t.Run("by the environment", func(t *testing.T) {
		t.Setenv("GOGC", "77")
		var a App
		a.startGC()
		require.Empty(t, a.closers)
		require.Equal(t, 77, debug.SetGCPercent(77))
	})
}
