package algorithm

import (
	"math"
	"time"
)

// RatePer gives Limits.Rate for a refill per unit: the smallest number that is not below refill divided by the unit's
// microseconds. Rounded to nearest instead, a bucket of 119 that refills at 255 a day would hold 118.99999999999999 tokens
// after the 40,320 seconds that it takes to refill 119, and deny the last call of a client that was told so.
func RatePer(unit time.Duration, refill float64) float64 {
	micros := float64(unit.Microseconds())
	rate := refill / micros
	if math.FMA(rate, micros, -refill) < 0 {
		rate = math.Nextafter(rate, math.Inf(1))
	}
	return rate
}
