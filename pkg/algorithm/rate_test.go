package algorithm_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// TestRatePerFillsInTime: in any whole number of seconds that is long enough by the numbers as written, a drained bucket fills.
func TestRatePerFillsInTime(t *testing.T) {
	check := func(t require.TestingT, unit time.Duration, refill, capacity float64) {
		l := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: capacity, Rate: algorithm.RatePer(unit, refill)}
		seconds := int64(math.Ceil(capacity * unit.Seconds() / refill))
		require.Equal(t, capacity, algorithm.Tokens{}.Remaining(l, seconds*1e6))
		require.InEpsilon(t, refill/float64(unit.Microseconds()), l.Rate, 1e-15)
	}
	check(t, 24*time.Hour, 255, 119)
	rapid.Check(t, func(t *rapid.T) {
		unit := rapid.SampledFrom([]time.Duration{time.Second, time.Minute, time.Hour, 24 * time.Hour}).Draw(t, "unit")
		check(t, unit, float64(rapid.IntRange(1, 1e6).Draw(t, "refill")), float64(rapid.IntRange(1, 1e6).Draw(t, "capacity")))
	})
}
