package storetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// perDay is a refill per day as a rate per minute.
const perDay = 1. / (24 * 60)

var concurrentTests = []test{
	{name: "200 clients with 5 calls each on one key admit exactly 100", run: func(f *fixture) {
		for run := range rounds(5, 50) {
			for _, b := range []ratelimit.Bucket{f.take(fmt.Sprint("tokens", run), TB(100, perDay)), f.take(fmt.Sprint("log", run), SL(100, time.Hour))} {
				require.Equal(f, 100, f.crowd(200, 5, func(int) []ratelimit.Bucket { return []ratelimit.Bucket{b} }))
			}
		}
	}},
	{name: "a bucket beside a drained one is charged exactly what was admitted", run: func(f *fixture) {
		for run := range rounds(5, 50) {
			small, big := f.take(fmt.Sprint("small", run), TB(30, perDay)), f.take(fmt.Sprint("big", run), SL(1000, time.Hour))
			admitted := f.crowd(50, 10, func(n int) []ratelimit.Bucket {
				if n%2 == 0 {
					return []ratelimit.Bucket{big, small} // also the other way round: that must not deadlock
				}
				return []ratelimit.Bucket{small, big}
			})
			require.Equal(f, 30, admitted)
			require.Equal(f, 970.0, f.left(big))
		}
	}},
	{name: "takes and undos leave what was there", run: func(f *fixture) {
		for _, b := range []ratelimit.Bucket{f.take("tokens", TB(50, perDay)), f.take("log", SL(50, time.Hour))} {
			var wg sync.WaitGroup
			for range 20 {
				wg.Go(func() {
					for range 20 {
						r := f.h.Store.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)
						f.h.Store.Acquire(context.Background(), []ratelimit.Bucket{undo(b, r[0])}, nil)
					}
				})
			}
			wg.Wait()
			require.InDelta(f, 50, f.left(b), 1e-9)
		}
	}},
}

// crowd lets clients call at once, each a number of times, and returns how many calls were admitted.
func (f *fixture) crowd(clients, calls int, buckets func(client int) []ratelimit.Bucket) int {
	f.Helper()
	var admitted, failed atomic.Int64
	var wg sync.WaitGroup
	start := make(chan struct{})
	for client := range clients {
		wg.Go(func() {
			call := buckets(client)
			var results []ratelimit.Result
			<-start
			for range calls {
				results = f.h.Store.Acquire(context.Background(), call, results)
				switch {
				case decided(results, ratelimit.Admitted) == len(call):
					admitted.Add(1)
				case decided(results, ratelimit.Denied) == 0:
					failed.Add(1)
				}
			}
		})
	}
	close(start)
	wg.Wait()
	require.Zero(f, failed.Load(), "calls that were not decided")
	return int(admitted.Load())
}

func decided(results []ratelimit.Result, o ratelimit.Outcome) int {
	n := 0
	for _, r := range results {
		if r.Outcome == o {
			n++
		}
	}
	return n
}
