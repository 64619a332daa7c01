package page

import (
	"math"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// kept is how many seconds the plots go back.
const kept = 300

// history is the last seconds, the oldest first.
type history struct{ seconds []second }

func (h *history) add(s second) {
	if len(h.seconds) == kept {
		copy(h.seconds, h.seconds[1:])
		h.seconds = h.seconds[:kept-1]
	}
	h.seconds = append(h.seconds, s)
}

// last gives up to n of the latest seconds.
func (h *history) last(n int) []second { return h.seconds[max(0, len(h.seconds)-n):] }

// Series are plots: one value of each for every second of Time, in seconds since 1970. Rates are per second, times in microseconds.
type Series struct {
	Time      []float64            `json:"time"`
	Allowed   []float64            `json:"allowed"`
	Denied    []float64            `json:"denied"`
	WouldDeny []float64            `json:"wouldDeny"`
	BySource  map[string][]float64 `json:"bySource"`
	Decision  Latencies            `json:"decision"`
	Store     Latencies            `json:"store"`
}

// Latencies are the same for Latency.
type Latencies struct {
	P50 []*float64 `json:"p50"`
	P99 []*float64 `json:"p99"`
}

func (l *Latencies) add(one Latency) {
	l.P50, l.P99 = append(l.P50, one.P50), append(l.P99, one.P99)
}

// seriesOf turns seconds into columns. Every source has one.
func seriesOf(seconds []second) *Series {
	s := &Series{BySource: map[string][]float64{}}
	for source := 1; source < sources; source++ {
		s.BySource[ratelimit.Source(source).String()] = nil
	}
	for i := range seconds {
		at := &seconds[i]
		s.Time = append(s.Time, math.Round(float64(at.at.UnixMilli()))/1e3)
		s.Allowed, s.Denied, s.WouldDeny = append(s.Allowed, tidy(at.allowed)), append(s.Denied, tidy(at.denied)), append(s.WouldDeny, tidy(at.wouldDeny))
		s.Decision.add(at.decision)
		s.Store.add(at.store)
		for source := 1; source < sources; source++ {
			name := ratelimit.Source(source).String()
			s.BySource[name] = append(s.BySource[name], tidy(at.bySource[source]))
		}
	}
	return s
}

// tidy leaves two places.
func tidy(n float64) float64 { return math.Round(n*100) / 100 }
