package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// callTimeout is how long a call may take, and how long a server may take to come up.
const callTimeout = 15 * time.Second

// load is a number of workers that each make one call after the other.
type load struct {
	workers, connections int
	keys                 uint64
	rate                 float64 // calls a second that all make together, if they can; 0: as many as they can
}

// sample is what one measurement saw.
type sample struct {
	calls, denied int
	elapsed       time.Duration
	cpu           time.Duration // spent by the server
	store         usage         // of its Redis, if it has one
	p50, p99      time.Duration // of the calls' latencies
}

// cpuPerCall is in microseconds.
func (s sample) cpuPerCall() float64 {
	return float64(s.cpu) / float64(time.Microsecond) / float64(max(1, s.calls))
}

// storeCPUPerCall is in microseconds.
func (s sample) storeCPUPerCall() float64 {
	return float64(s.store.cpu) / float64(time.Microsecond) / float64(max(1, s.calls))
}

// storeCallsPerCall is how many runs of a script a call took.
func (s sample) storeCallsPerCall() float64 {
	return float64(s.store.scripts) / float64(max(1, s.calls))
}

// batch is how many runs of a script Redis found at a time.
func (s sample) batch() float64 { return float64(s.store.scripts) / float64(max(1, s.store.reads)) }

// perSecond is the throughput in calls.
func (s sample) perSecond() float64 { return float64(s.calls) / s.elapsed.Seconds() }

// tally is what one worker saw.
type tally struct {
	latencies []time.Duration
	denied    int
}

// run calls srv for a while. Any call that fails is an error.
func (l load) run(ctx context.Context, srv *server, s scenario, d time.Duration) (sample, error) {
	clients, closeAll, err := l.connect(ctx, srv.addr)
	if err != nil {
		return sample{}, fmt.Errorf("%s: %w", srv.name, err)
	}
	defer closeAll()
	before, storeBefore, err := srv.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	start := time.Now()
	tallies := make([]tally, l.workers)
	group, working := errgroup.WithContext(ctx)
	for w := range l.workers {
		group.Go(func() error { return l.work(working, clients[w%len(clients)], s, start.Add(d), &tallies[w]) })
	}
	if err := group.Wait(); err != nil {
		return sample{}, fmt.Errorf("%s: %w", srv.name, err)
	}
	elapsed := time.Since(start)
	after, storeAfter, err := srv.usage(ctx)
	if err != nil {
		return sample{}, err
	}
	out := sum(tallies)
	out.elapsed, out.cpu, out.store = elapsed, after-before, storeAfter.since(storeBefore)
	return out, nil
}

// verify makes sure that srv decides s as s says.
func (l load) verify(ctx context.Context, srv *server, s scenario) error {
	clients, closeAll, err := l.connect(ctx, srv.addr)
	if err != nil {
		return fmt.Errorf("%s: %w", srv.name, err)
	}
	defer closeAll()
	return s.verify(ctx, clients[0])
}

// connect opens the connections and waits until the server answers on each.
func (l load) connect(ctx context.Context, addr string) (clients []rls.RateLimitServiceClient, closeAll func(), err error) {
	var conns []*grpc.ClientConn
	closeAll = func() {
		for _, c := range conns {
			_ = c.Close() // fails only if it is closed
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for range l.connections {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			closeAll()
			return nil, nil, err
		}
		conns = append(conns, conn)
		client := rls.NewRateLimitServiceClient(conn)
		if _, err := client.ShouldRateLimit(ctx, request(descriptor("plan", "none")), grpc.WaitForReady(true)); err != nil {
			closeAll()
			return nil, nil, err
		}
		clients = append(clients, client)
	}
	return clients, closeAll, nil
}

// work makes calls until the time has come.
func (l load) work(ctx context.Context, c rls.RateLimitServiceClient, s scenario, until time.Time, t *tally) error {
	pace := l.pace(time.Now())
	for now := pace.wait(time.Now()); now.Before(until); now = pace.wait(now) {
		request := s.request(rand.Uint64N(l.keys))
		call, cancel := context.WithTimeout(ctx, callTimeout) // Envoy's calls have a deadline as well
		answer, err := c.ShouldRateLimit(call, request)
		cancel()
		if err != nil {
			return err
		}
		if answer.OverallCode == rls.RateLimitResponse_OVER_LIMIT {
			t.denied++
		}
		end := time.Now()
		t.latencies = append(t.latencies, end.Sub(now))
		now = end
	}
	return nil
}

func sum(tallies []tally) sample {
	var out sample
	var all []time.Duration
	for _, t := range tallies {
		all = append(all, t.latencies...)
		out.denied += t.denied
	}
	slices.Sort(all)
	out.calls = len(all)
	out.p50, out.p99 = quantile(all, 0.50), quantile(all, 0.99)
	return out
}
