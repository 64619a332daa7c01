package algorithm_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

func TestMark(t *testing.T) {
	const step, start = 65_536, 1_800_000_000_000_000 / 65_536 * 65_536
	for _, s := range []struct {
		name        string
		taken, now  int64
		left, steps int64
	}{
		{"at the beginning of a step", start, start, 15 * step, 15},
		{"at its end", start + step - 1, start + step - 1, 14*step + 1, 15},
		{"a step later", start, start + step, 14 * step, 14},
		{"a microsecond before it ends", start, start + 15*step - 1, 1, 1},
		{"when it ends", start, start + 15*step, 0, 0},
		{"an hour later", start, start + 3_600_000_000, 0, 0},
	} {
		t.Run(s.name, func(t *testing.T) {
			m := algorithm.NewMark(s.taken)
			require.Equal(t, s.left, m.Left(s.now))
			require.Equal(t, s.steps, m.Steps(s.now))
		})
	}
	require.Zero(t, algorithm.Mark(0).Left(start), "none")
	require.Zero(t, algorithm.Mark(0).Steps(start), "none")
}

func TestAMarkIsNotMovedByWritingItAnew(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		taken := rapid.Int64Range(0, 1<<52-1<<21).Draw(t, "taken")
		m, now := algorithm.NewMark(taken), taken
		require.LessOrEqual(t, m.Left(taken), int64(983_040))
		require.Greater(t, m.Left(taken), int64(917_504))
		for range 20 {
			now += rapid.Int64Range(0, 100_000).Draw(t, "passed")
			again := algorithm.MarkAfter(m.Steps(now), now)
			require.Equal(t, m.Left(now), again.Left(now))
			m = again
		}
	})
}
