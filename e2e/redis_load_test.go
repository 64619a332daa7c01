package e2e_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// outcome is what came of many calls. Safe for concurrent use while they are made.
type outcome struct {
	mu              sync.Mutex
	allowed, denied int
	errors          int
	first           error // of the errors
	latencies       []time.Duration
	inFlight        atomic.Int64
	peak            atomic.Int64 // the most calls that were under way at once
}

func (o *outcome) call(f *fleet, n int, r *rls.RateLimitRequest) {
	now := o.inFlight.Add(1)
	for p := o.peak.Load(); now > p && !o.peak.CompareAndSwap(p, now); p = o.peak.Load() {
	}
	began := time.Now()
	allowed, err := f.call(n, r)
	took := time.Since(began)
	o.inFlight.Add(-1)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.latencies = append(o.latencies, took)
	switch {
	case err != nil:
		o.errors++
		if o.first == nil {
			o.first = err
		}
	case allowed:
		o.allowed++
	default:
		o.denied++
	}
}

// String gives the counts, and the first error if there was one.
func (o *outcome) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.first != nil {
		return fmt.Sprintf("%d allowed, %d denied, %d errors, the first: %v", o.allowed, o.denied, o.errors, o.first)
	}
	return fmt.Sprintf("%d allowed, %d denied", o.allowed, o.denied)
}

// quantile is how long the fastest share of the calls took at most. Nothing may be under way.
func (o *outcome) quantile(share float64) time.Duration {
	if len(o.latencies) == 0 {
		return 0
	}
	slices.Sort(o.latencies)
	return o.latencies[min(len(o.latencies)-1, int(share*float64(len(o.latencies))))]
}

// crowd has clients call at once, each a number of times in a row, spread over the instances and their connections.
func crowd(f *fleet, clients, calls int, r *rls.RateLimitRequest) *outcome {
	o := &outcome{}
	var all sync.WaitGroup
	start := make(chan struct{})
	for n := range clients {
		all.Go(func() {
			<-start
			for range calls {
				o.call(f, n, r)
			}
		})
	}
	close(start)
	all.Wait()
	return o
}

// stream calls at a steady rate, whether or not earlier calls have been answered, until it is stopped.
type stream struct {
	outcome
	began time.Time
	ended time.Duration
	quit  chan struct{}
	all   sync.WaitGroup
}

// startStream starts perSecond calls a second. request makes the request of call n.
func startStream(t *testing.T, f *fleet, perSecond int, request func(n int) *rls.RateLimitRequest) *stream {
	s := &stream{began: time.Now(), quit: make(chan struct{})}
	s.all.Go(func() { s.run(f, perSecond, request) })
	t.Cleanup(s.stop)
	return s
}

func (s *stream) run(f *fleet, perSecond int, request func(n int) *rls.RateLimitRequest) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
		for due := int(time.Since(s.began).Seconds() * float64(perSecond)); n < due; n++ {
			r, n := request(n), n
			s.all.Go(func() { s.call(f, n, r) })
		}
	}
}

// stop ends the stream and returns when all its calls have been answered.
func (s *stream) stop() {
	select {
	case <-s.quit:
	default:
		s.ended = time.Since(s.began)
		close(s.quit)
	}
	s.all.Wait()
}

// perSecond is the rate that the stream had.
func (s *stream) perSecond() float64 { return float64(len(s.latencies)) / s.ended.Seconds() }

// calls is how many calls have been answered so far.
func (s *stream) calls() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.latencies)
}
