package bench

import (
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Latencies are times that calls took, exact to three digits, from a microsecond to ten minutes.
type Latencies struct{ h *hdrhistogram.Histogram }

const (
	longest = 10 * time.Minute
	digits  = 3
)

// NewLatencies makes an empty set.
func NewLatencies() *Latencies {
	return &Latencies{hdrhistogram.New(1, longest.Microseconds(), digits)}
}

// Add adds one.
func (l *Latencies) Add(d time.Duration) {
	_ = l.h.RecordValue(min(max(d, time.Microsecond), longest).Microseconds()) // within bounds
}

// Merge adds those of another set.
func (l *Latencies) Merge(from *Latencies) { l.h.Merge(from.h) }

// Count is how many there are.
func (l *Latencies) Count() int64 { return l.h.TotalCount() }

// At is the latency that a share q (0 to 1) of the calls did not exceed; 0 of none.
func (l *Latencies) At(q float64) time.Duration {
	if l.Count() == 0 {
		return 0
	}
	return time.Duration(l.h.ValueAtQuantile(q*100)) * time.Microsecond
}

// Max is the longest.
func (l *Latencies) Max() time.Duration { return time.Duration(l.h.Max()) * time.Microsecond }

// recorder takes what many workers see. Each histogram takes some 200 kB, so workers share a few.
type recorder struct{ stripes []stripe }

type stripe struct {
	mu      sync.Mutex
	latency *Latencies
	lag     *Latencies // how late calls were sent
	allowed int64
	denied  int64
	errors  map[string]int64
}

func newRecorder(workers int) *recorder {
	r := &recorder{make([]stripe, max(1, min(workers, 4*runtime.GOMAXPROCS(0))))}
	for i := range r.stripes {
		r.stripes[i].latency, r.stripes[i].lag, r.stripes[i].errors = NewLatencies(), NewLatencies(), map[string]int64{}
	}
	return r
}

func (r *recorder) add(worker int, v Verdict, failure string, took, lag time.Duration) {
	s := &r.stripes[worker%len(r.stripes)]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency.Add(took)
	s.lag.Add(lag)
	switch {
	case failure != "":
		s.errors[failure]++
	case v == Denied:
		s.denied++
	default:
		s.allowed++
	}
}

func (r *recorder) sum(into *Result) {
	into.Latency, into.Lag, into.Errors = NewLatencies(), NewLatencies(), map[string]int64{}
	for i := range r.stripes {
		s := &r.stripes[i]
		into.Latency.Merge(s.latency)
		into.Lag.Merge(s.lag)
		into.Allowed += s.allowed
		into.Denied += s.denied
		for code, n := range s.errors {
			into.Errors[code] += n
		}
	}
}
