package fallback

import (
	"math"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// Instances are the instances of the service that share a limit while the store fails, and which of them this one is. The zero value
// stands for one that is alone.
type Instances struct {
	// Count is how many there are, this one included.
	Count int
	// Index is this one's place among them, from 0; -1 if that is unknown.
	Index int
}

// Share is this instance's part of a limit. Over all instances, the capacities of a key are whole numbers that sum to its capacity, and the
// rates sum to its rate, or to less by what a double cannot hold. What does not divide evenly goes to some of them, which ones depends on
// the key, so that limits smaller than the number of instances are not all counted by the same ones. Without an Index the share is
// the one that all instances have at least: nothing, if there are more of them than the capacity.
func (n Instances) Share(l algorithm.Limits, key []byte) algorithm.Limits {
	if n.Count <= 1 {
		return l
	}
	count := float64(n.Count)
	share := math.Floor(l.Capacity / count)
	if n.Index >= 0 {
		place := (uint64(n.Index) + spread(key)) % uint64(n.Count)
		if float64(place) < l.Capacity-float64(share*count) {
			share++
		}
	}
	l.Rate = part(l.Rate, share, l.Capacity)
	l.Capacity = share
	return l
}

// part is the largest double that is no more than rate * share / capacity.
func part(rate, share, capacity float64) float64 {
	if share == 0 || rate == 0 {
		return 0
	}
	most := rate * share
	rest := math.FMA(rate, share, -most) // rate * share is most + rest
	q := most / capacity
	for {
		product := q * capacity
		over := (product - most) + (math.FMA(q, capacity, -product) - rest)
		if over <= 0 {
			return q
		}
		q = math.Nextafter(q, 0)
	}
}

// spread turns a key into a number that is the same in every process: FNV-1a, with the last step of SplitMix64, since FNV's low bits
// alone tell similar keys badly apart.
func spread(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return (h ^ h>>31) >> 1 // an index can be added to it
}
