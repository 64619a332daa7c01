package topkeys

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestSketchAgainstExactCounts makes streams of keys, skewed and flat, that fade now and then, and compares with counts of every key.
func TestSketchAgainstExactCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Sketch
		exact := map[uint64]float64{}
		weight := 0.0
		keys := rapid.IntRange(1, 2000).Draw(t, "keys")
		skew := rapid.Float64Range(0, 6).Draw(t, "skew")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		for range rapid.IntRange(1, 5000).Draw(t, "calls") {
			if random.IntN(200) == 0 {
				factor := 0.5 + random.Float64()/2
				left := s.Decay(factor)
				for id := range exact {
					exact[id] *= factor
				}
				weight *= factor
				require.InDelta(t, weight, left, 1e-6)
			}
			id := 1 + uint64(float64(keys)*math.Pow(random.Float64(), 1+skew))
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
		require.LessOrEqual(t, s.errors[i], bound+rounding, "the error is told too large")
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
