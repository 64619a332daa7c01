package topkeys

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSketchAgainstExactCounts draws streams of keys, skewed and flat, that fade now and then, and compares with counts of every key.
func TestSketchAgainstExactCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Sketch
		exact := map[uint64]float64{}
		weight := 0.0
		keys := rapid.Uint64Range(1, 500).Draw(t, "keys")
		skew := rapid.IntRange(1, 4).Draw(t, "skew")
		for _, drawn := range rapid.SliceOfN(rapid.Uint64Range(0, 1<<20-1), 1, 3000).Draw(t, "calls") {
			if drawn%97 == 0 {
				factor := 0.5 + float64(drawn%50)/100
				left := s.Decay(factor)
				for id := range exact {
					exact[id] *= factor
				}
				weight *= factor
				require.InDelta(t, weight, left, 1e-6)
				continue
			}
			id := drawn
			for range skew {
				id = id * drawn >> 20
			}
			id = id*keys>>20 + 1
			exact[id]++
			weight++
			place, _ := s.Add(id)
			require.Equal(t, id, s.ids[place])
		}
		checkBound(t, &s, exact, weight)
	})
}

func checkBound(t require.TestingT, s *Sketch, exact map[uint64]float64, weight float64) {
	const rounding = 1e-6
	bound := weight / slots
	known := map[uint64]bool{}
	for i := range s.used {
		id, count := s.ids[i], s.counts[i]
		require.False(t, known[id], "a key stands in two places")
		known[id] = true
		require.GreaterOrEqual(t, count, exact[id]-rounding, "counted too low")
		require.LessOrEqual(t, count-s.errors[i], exact[id]+rounding, "the error is told too small")
		require.LessOrEqual(t, count, exact[id]+bound+rounding, "counted too high")
	}
	for id, n := range exact {
		if !known[id] {
			require.LessOrEqual(t, n, bound+rounding, "a key of more than weight/slots is missing")
		}
	}
}

func TestFadeHalvesInHalfLife(t *testing.T) {
	var s Sketch
	for range 1000 {
		s.Add(1)
	}
	left := 0.0
	for range HalfLife {
		left = s.Decay(Fade)
	}
	require.InDelta(t, 500, left, 1e-6)
}
