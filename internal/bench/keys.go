package bench

import (
	"math"
	"math/rand/v2"
	"sync/atomic"
)

// Keys says which keys are called for: the numbers from 0 to Count-1.
type Keys struct {
	Count uint64
	Draw  Draw
	// Exponent is that of Zipf: the chance of key k is proportional to (k+1)^-Exponent. Above 1.
	Exponent float64
}

// Draw is how keys are chosen.
type Draw string

// The draws.
const (
	Uniform  Draw = "uniform"
	Zipf     Draw = "zipf"
	Sequence Draw = "sequence" // one after the other, then again from the first
)

// DefaultExponent is that of Zipf if a scenario gives none.
const DefaultExponent = 1.1

// drawer gives a worker's source of keys. next is what workers share for a Sequence.
func (k Keys) drawer(r *rand.Rand, next *atomic.Uint64) func() uint64 {
	switch k.Draw {
	case Zipf:
		return rand.NewZipf(r, k.Exponent, 1, k.Count-1).Uint64
	case Sequence:
		return func() uint64 { return (next.Add(1) - 1) % k.Count }
	default:
		return func() uint64 { return r.Uint64N(k.Count) }
	}
}

// bins divides the keys into ranges whose chances are known, so that what was called for can be held against what should have been.
type bins struct {
	first  []uint64 // the first key of each
	chance []float64
}

const (
	uniformBins = 256
	singleBins  = 32 // Zipf: keys that have a bin to themselves
)

func (k Keys) bins() *bins {
	b := &bins{}
	if k.Draw != Zipf {
		n := min(k.Count, uniformBins)
		for i := range n {
			first, next := i*k.Count/n, (i+1)*k.Count/n
			b.first = append(b.first, first)
			b.chance = append(b.chance, float64(next-first)/float64(k.Count))
		}
		return b
	}
	total := 0.0
	for key, next := uint64(0), uint64(0); key < k.Count; key++ {
		if key == next {
			b.first, b.chance = append(b.first, key), append(b.chance, 0)
			next = key + 1 + key/4
			if key < singleBins {
				next = key + 1
			}
		}
		p := math.Pow(float64(key+1), -k.Exponent)
		b.chance[len(b.chance)-1] += p
		total += p
	}
	for i := range b.chance {
		b.chance[i] /= total
	}
	return b
}

// find gives the bin of a key.
func (b *bins) find(key uint64) int {
	low, high := 0, len(b.first)
	for high-low > 1 {
		if middle := (low + high) / 2; b.first[middle] <= key {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// leastExpected is how many calls a bin must be due for the statistic to hold; smaller ones are taken together.
const leastExpected = 5

// deviation says how far counts are from what the chances say, in standard deviations of a chi-square statistic (by Wilson and Hilferty's
// approximation): beyond 5 happens by chance once in millions of runs. 0 where there is too little to judge.
func (b *bins) deviation(counts []uint64) float64 {
	var total uint64
	for _, n := range counts {
		total += n
	}
	var square, want, got float64
	freedom := -1.0
	for i, n := range counts {
		want += b.chance[i] * float64(total)
		got += float64(n)
		if want >= leastExpected || i == len(counts)-1 && want > 0 {
			square += (got - want) * (got - want) / want
			freedom++
			want, got = 0, 0
		}
	}
	if freedom < 1 {
		return 0
	}
	spread := 2 / (9 * freedom)
	return (math.Cbrt(square/freedom) - (1 - spread)) / math.Sqrt(spread)
}
