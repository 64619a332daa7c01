package gcpace

import (
	"errors"
	"math"
	"os"
	"runtime/debug"
	"testing"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPercent(t *testing.T) {
	for _, tt := range []struct {
		live  uint64
		limit int64
		want  int
	}{
		{0, 0, 400},
		{10 << 20, 0, 400},
		{64 << 20, 0, 400},
		{128 << 20, 0, 200},
		{256 << 20, 0, 100},
		{10 << 30, 0, 100},
		{8 << 20, 200 << 20, 400},
		{50 << 20, 200 << 20, 200},
		{128 << 20, 200 << 20, 100},
		{128 << 20, 10 << 30, 200},
	} {
		require.Equal(t, tt.want, percent(tt.live, tt.limit), "%d bytes alive, limit %d", tt.live, tt.limit)
	}
}

func TestPaceIsLeftAsItWas(t *testing.T) {
	before := debug.SetGCPercent(77)
	defer debug.SetGCPercent(before)
	t.Run("by the process", func(t *testing.T) {
		t.Setenv("GOGC", "") // so that it is put back afterwards
		require.NoError(t, os.Unsetenv("GOGC"))
		stop := Start()
		require.Equal(t, lazy, debug.SetGCPercent(lazy))
		stop()
		require.Equal(t, 77, debug.SetGCPercent(77))
	})
	t.Run("by the environment", func(t *testing.T) {
		t.Setenv("GOGC", "77")
		stop := Start()
		require.Equal(t, 77, debug.SetGCPercent(77))
		stop()
		require.Equal(t, 77, debug.SetGCPercent(77))
	})
}

func TestLimitMemory(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "") // so that it is put back afterwards
	require.NoError(t, os.Unsetenv("GOMEMLIMIT"))
	container := func(limit uint64, err error) memlimit.Provider { return func() (uint64, error) { return limit, err } }

	limit, err := limitMemory(container(1000<<20, nil))
	require.NoError(t, err)
	require.EqualValues(t, 900<<20, limit)
	require.EqualValues(t, 900<<20, debug.SetMemoryLimit(-1))

	limit, err = limitMemory(container(0, errors.New("cpu.max: no such file")))
	require.EqualError(t, err, "find out the container's memory limit: failed to set GOMEMLIMIT: cpu.max: no such file; set GOMEMLIMIT to nine tenths of it")
	require.EqualValues(t, 900<<20, limit, "what was set before stays")

	for _, none := range []error{memlimit.ErrNoLimit, memlimit.ErrNoCgroup, memlimit.ErrCgroupsNotSupported} {
		debug.SetMemoryLimit(math.MaxInt64)
		limit, err = limitMemory(container(0, none))
		require.NoError(t, err)
		require.Zero(t, limit, none)
	}

	debug.SetMemoryLimit(123 << 20)
	t.Setenv("GOMEMLIMIT", "123MiB")
	limit, err = limitMemory(container(1000<<20, nil))
	require.NoError(t, err)
	require.EqualValues(t, 123<<20, limit, "the environment comes first")
}
