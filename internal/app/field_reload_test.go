//go:build linux

package app_test

import (
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// TestField_ManyPolicies: 10,000 policies load within 5 s, and a reload under load shows no decision above 50 ms. Both are
// times on the processor, since a busy machine can stall anything; a decision that waited for the reload would take most of its time.
func TestField_ManyPolicies(t *testing.T) {
	if !long() || raced {
		t.Skip("takes both cores for seconds and measures: ENVOY_RLS_LONG=1, without -race")
	}
	m := metrics.New(metrics.Options{})
	limiter, set := limiterOf(t, many(10_000, 1), m)
	service := rls.NewService(limiter, rls.Hooks{})
	m.Use(set)
	stop, caller := make(chan struct{}), sync.WaitGroup{}
	var slowest, longest time.Duration // on the processor, by the wall
	caller.Go(func() {
		runtime.LockOSThread() // threadTime is this thread's
		defer runtime.UnlockOSThread()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			before, began := threadTime(), time.Now()
			answer(t, service, "10.0.0."+strconv.Itoa(n&255))
			slowest, longest = max(slowest, threadTime()-before), max(longest, time.Since(began))
		}
	})
	before, began := processTime(), time.Now()
	next := setOf(t, many(10_000, 2))
	m.Use(next)
	service.Prepare(next)
	limiter.Use(next)
	took, spent := time.Since(began), processTime()-before
	close(stop)
	caller.Wait()
	t.Logf("loaded in %v (%v of processor, calls included), slowest decision %v of processor, %v in all", took, spent, slowest, longest)
	require.Less(t, slowest, 50*time.Millisecond)
	require.Less(t, longest, took/2, "no decision waits for the reload")
	require.Less(t, min(took, spent), 5*time.Second)
}

func answer(t *testing.T, service *rls.Service, ip string) {
	req := descriptors.Request{Domain: []byte("edge"), Descriptors: []descriptors.Descriptor{
		{Entries: []descriptors.Entry{{Key: []byte("ip"), Value: []byte(ip)}}},
	}}
	var resp rls.Response
	if err := service.ShouldRateLimit(t.Context(), &req, &resp); err != nil {
		t.Error(err)
	}
}

// threadTime is the processor time of the calling thread, processTime that of the whole process.
func threadTime() time.Duration  { return usage(1) } // RUSAGE_THREAD
func processTime() time.Duration { return usage(syscall.RUSAGE_SELF) }

func usage(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
