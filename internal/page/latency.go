package page

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// histogram counts durations in classes that are an eighth of themselves wide, from 64 ns to 17 s.
type histogram struct{ classes [classes]atomic.Uint64 }

const (
	fineBits = 3
	shortest = 6  // as a power of two, in nanoseconds
	longest  = 34 // the same
	classes  = (longest - shortest) << fineBits
)

func (h *histogram) observe(d time.Duration) { h.classes[classOf(d)].Add(1) }

func classOf(d time.Duration) int {
	ns := uint64(max(d, 1<<shortest))
	power := bits.Len64(ns) - 1
	if power >= longest {
		return classes - 1
	}
	fine := int(ns>>(power-fineBits)) & (1<<fineBits - 1)
	return (power-shortest)<<fineBits | fine
}

// middle is a duration of class c.
func middle(c int) time.Duration {
	power, fine := shortest+c>>fineBits, c&(1<<fineBits-1)
	width := time.Duration(1) << (power - fineBits)
	return time.Duration(1)<<power + time.Duration(fine)*width + width/2
}

// Latency says how long half of the calls took at most, and 99 of 100. In microseconds; nil: there was no call.
type Latency struct {
	P50 *float64 `json:"p50"`
	P99 *float64 `json:"p99"`
}

// recent gives what a histogram has counted since it was asked last.
type recent struct{ before [classes]uint64 }

func (r *recent) since(h *histogram) Latency {
	var counts [classes]uint64
	total := uint64(0)
	for i := range counts {
		now := h.classes[i].Load()
		counts[i] = now - r.before[i]
		r.before[i] = now
		total += counts[i]
	}
	return Latency{quantile(&counts, total, 0.5), quantile(&counts, total, 0.99)}
}

func quantile(counts *[classes]uint64, total uint64, q float64) *float64 {
	if total == 0 {
		return nil
	}
	rank, seen := uint64(q*float64(total-1)), uint64(0)
	for i, n := range counts {
		if seen += n; seen > rank {
			us := float64(middle(i)) / float64(time.Microsecond)
			return &us
		}
	}
	return nil
}
