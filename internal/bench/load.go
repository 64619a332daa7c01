package bench

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/status"
)

// Caller makes one call for a worker. [Client] is one.
type Caller interface {
	Call(ctx context.Context, worker int, request []byte) (Verdict, error)
}

// Load is how calls are made.
type Load struct {
	Workers int // calls under way at a time: in a closed loop exactly, in an open one at most
	// Rate is how many calls a second are due in an open loop, and are made at most in a closed one. 0 in a closed loop: no bound.
	Rate     float64
	Open     bool
	Duration time.Duration // calls that are due later are not made; all others are waited for
	Calls    int64         // if above 0: no more than these
	// Progress, if set, is told now and then how much of the time has passed, from 0 to 1. It is not called at the same time twice.
	Progress func(done float64)
}

// Result is what became of the calls.
type Result struct {
	Allowed, Denied int64
	Errors          map[string]int64 // by gRPC's name of the code
	Elapsed         time.Duration    // from the first call to the last answer
	Latency         *Latencies       // of all calls: from when a call was due in an open loop, from when it was sent in a closed one
	Lag             *Latencies       // how long after it was due a call was sent: the server's stalls, or a generator without the cores for the rate
	Made            []uint64         // by the scenario's calls
	// Deviation is how far the keys that were called for are from those that should have been, in standard deviations; see [MaxDeviation].
	Deviation float64
}

// MaxDeviation is what Deviation may be, lest the benchmark have measured some keys only.
const MaxDeviation = 5

// Total is how many calls were made.
func (r *Result) Total() int64 { return r.Allowed + r.Denied + r.Failed() }

// Failed is how many calls ended in an error.
func (r *Result) Failed() (n int64) {
	for _, failed := range r.Errors {
		n += failed
	}
	return n
}

// PerSecond is how many calls were answered a second.
func (r *Result) PerSecond() float64 {
	if r.Elapsed <= 0 {
		return 0
	}
	return float64(r.Total()) / r.Elapsed.Seconds()
}

// errorPause keeps a worker of a closed loop from doing nothing but fail.
const errorPause = 10 * time.Millisecond

// Run makes the calls. Calls that fail are counted; the error tells of a load that makes no sense, or that ctx is done.
func (l Load) Run(ctx context.Context, c Caller, calls *Calls) (*Result, error) {
	if l.Workers < 1 || l.Duration <= 0 || l.Rate < 0 || l.Open && l.Rate == 0 {
		return nil, errors.New("a load needs workers, a duration and, in an open loop, a rate")
	}
	r := &run{Load: l, caller: c, calls: calls, recorder: newRecorder(l.Workers), start: time.Now()}
	stop := r.watch()
	if l.Open {
		r.dispatch(ctx)
	} else {
		r.loop(ctx)
	}
	out := &Result{Elapsed: time.Since(r.start)}
	stop()
	r.recorder.sum(out)
	drawn := make([]uint64, len(calls.bins.first))
	out.Made = make([]uint64, len(calls.scenario.Calls))
	for _, m := range r.makers {
		addTo(drawn, m.drawn)
		addTo(out.Made, m.made)
	}
	out.Deviation = calls.bins.deviation(drawn)
	return out, ctx.Err()
}

func addTo(sum, more []uint64) {
	for i, n := range more {
		sum[i] += n
	}
}

// run is a load under way.
type run struct {
	Load
	caller   Caller
	calls    *Calls
	recorder *recorder
	start    time.Time
	tickets  atomic.Int64 // calls that were given out in a closed loop
	makers   []*maker     // by worker
}

// hire adds a worker.
func (r *run) hire() (worker int, m *maker) {
	worker = len(r.makers)
	m = r.calls.maker(worker)
	r.makers = append(r.makers, m)
	return worker, m
}

// call makes one that is due at a time, or now if that is zero, and takes down what became of it. ok is false if it failed; it
// is not taken down if ctx is done.
func (r *run) call(ctx context.Context, worker int, m *maker, due time.Time) (ok bool) {
	request := m.next()
	sent := time.Now()
	if due.IsZero() {
		due = sent
	}
	verdict, err := r.caller.Call(ctx, worker, request)
	end := time.Now()
	if ctx.Err() != nil {
		return false
	}
	failure := ""
	if err != nil {
		failure = status.Code(err).String()
	}
	r.recorder.add(worker, verdict, failure, end.Sub(due), sent.Sub(due))
	return err == nil
}

// dispatch makes the calls of an open loop. Each goes to the worker that had one last of those that have none, so that there are no more of them than
// are needed, and these are not cold.
func (r *run) dispatch(ctx context.Context) {
	var idle hands
	busy := make(chan struct{}, r.Workers)
	var all sync.WaitGroup
	defer all.Wait()
	defer idle.dismiss()
	for ticket := int64(0); r.Calls == 0 || ticket < r.Calls; ticket++ {
		after := time.Duration(float64(ticket) / r.Rate * float64(time.Second))
		due := r.start.Add(after)
		if after >= r.Duration || !waitUntil(ctx, due) {
			return
		}
		select {
		case busy <- struct{}{}:
		case <-ctx.Done():
			return
		}
		h := idle.take()
		if h == nil {
			h = make(hand, 1)
			worker, m := r.hire()
			all.Go(func() {
				for due := range h {
					r.call(ctx, worker, m, due)
					idle.put(h)
					<-busy
				}
			})
		}
		h <- due
	}
}

// hand is a worker of an open loop: it is told when its call is due.
type hand chan time.Time

// hands are those that have nothing to do, the last one first.
type hands struct {
	mu        sync.Mutex
	idle      []hand
	dismissed bool
}

func (h *hands) take() (one hand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := len(h.idle); n > 0 {
		one, h.idle = h.idle[n-1], h.idle[:n-1]
	}
	return one
}

func (h *hands) put(one hand) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dismissed {
		close(one)
		return
	}
	h.idle = append(h.idle, one)
}

// dismiss ends those that are idle, and the others when they are.
func (h *hands) dismiss() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dismissed = true
	for _, one := range h.idle {
		close(one)
	}
}

// loop makes the calls of a closed loop: each worker makes one after the other until all that are due have been made.
func (r *run) loop(ctx context.Context) {
	var all sync.WaitGroup
	for range r.Workers {
		worker, m := r.hire()
		all.Go(func() { r.work(ctx, worker, m) })
	}
	all.Wait()
}

func (r *run) work(ctx context.Context, worker int, m *maker) {
	pace := r.pace()
	for {
		if ticket := r.tickets.Add(1) - 1; r.Calls > 0 && ticket >= r.Calls {
			return
		}
		if due := pace(); due.Sub(r.start) >= r.Duration || !waitUntil(ctx, due) {
			return
		}
		if !r.call(ctx, worker, m, time.Time{}) && !waitUntil(ctx, time.Now().Add(errorPause)) {
			return
		}
	}
}

// pace gives a worker's func that says when its next call is due: now or, with a rate, at its next turn: one that is late makes up for it.
func (r *run) pace() func() time.Time {
	if r.Rate == 0 {
		return time.Now
	}
	every := time.Duration(float64(r.Workers) / r.Rate * float64(time.Second))
	next := r.start.Add(rand.N(max(every, 1))) // workers begin at different moments
	return func() time.Time {
		due := next
		next = next.Add(every)
		return due
	}
}

// waitUntil reports false if ctx was done before.
func waitUntil(ctx context.Context, t time.Time) bool {
	wait := time.Until(t)
	if wait <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

const progressEvery = 200 * time.Millisecond

// watch tells of the progress until the returned func is called.
func (r *run) watch() (stop func()) {
	if r.Progress == nil {
		return func() {}
	}
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				r.Progress(min(time.Since(r.start).Seconds()/r.Duration.Seconds(), 1))
			case <-ended:
				r.Progress(1)
				return
			}
		}
	}()
	return func() { close(ended); <-done }
}

// Observed is a caller that tells how much of a number of calls has been made. tell is not called at the same time twice.
func Observed(c Caller, of int64, tell func(done float64)) Caller {
	return &observed{Caller: c, of: of, tell: tell}
}

type observed struct {
	Caller
	of   int64
	tell func(float64)
	made atomic.Int64
	mu   sync.Mutex
}

// Call implements [Caller].
func (o *observed) Call(ctx context.Context, worker int, request []byte) (Verdict, error) {
	const every = 4096
	if n := o.made.Add(1); n%every == 0 {
		o.mu.Lock()
		o.tell(min(float64(n)/float64(o.of), 1))
		o.mu.Unlock()
	}
	return o.Caller.Call(ctx, worker, request)
}
