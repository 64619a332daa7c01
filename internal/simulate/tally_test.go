package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// However long a log gets, a series holds what was counted, where it belongs.
func TestSeriesGrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Int64Range(0, 1e12).Draw(t, "start")
		times := []int64{start}
		for range rapid.IntRange(0, 200).Draw(t, "calls") {
			times = append(times, times[len(times)-1]+rapid.SampledFrom([]int64{0, 400_000, 1_000_000, 17_000_000, 5_000_000_000}).Draw(t, "gap"))
		}
		var s series
		for i, at := range times {
			s.add(at, i%3 == 0)
		}
		s.atLeast(rapid.SampledFrom([]int64{0, 1 << 3 * 1_000_000, 1 << 20 * 1_000_000}).Draw(t, "width"))
		want := make([]Slot, len(s.slots))
		for i, at := range times {
			slot := &want[(at-s.start)/s.width]
			if i%3 == 0 {
				slot.Denied++
			} else {
				slot.Allowed++
			}
		}
		require.Equal(t, want, s.slots)
		require.LessOrEqual(t, len(want), maxSlots)
		require.Zero(t, s.start%s.width)
		require.LessOrEqual(t, s.start, start)
	})
}

func TestPercentiles(t *testing.T) {
	hundred := make([]int64, 100)
	for i := range hundred {
		hundred[i] = int64(100 - i)
	}
	require.Equal(t, Quantiles{50, 99, 100}, quantiles(hundred))
	require.Equal(t, Quantiles{1, 2, 2}, quantiles([]int64{2, 1}))
	require.Equal(t, Quantiles{}, quantiles(nil))
}
