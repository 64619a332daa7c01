package app

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// lazyGC lets garbage grow to four times what is alive, in percent. Each collection costs the calls under way: about a tenth
	// of the CPU per call less was measured than with Go's own 100.
	lazyGC, usualGC = 400, 100
	// maxGarbage is how many bytes of garbage lazyGC may let pile up. Millions of buckets are alive and would allow for far more.
	maxGarbage = 256 << 20
	gcInterval = 5 * time.Second
)

// startGC paces the garbage collector by what is alive, unless the environment does. GOMEMLIMIT, which Go itself reads, still
// bounds the memory.
func (a *App) startGC() {
	if _, set := os.LookupEnv("GOGC"); set {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	before := debug.SetGCPercent(lazyGC)
	done := make(chan struct{})
	go func() {
		defer close(done)
		paceGC(ctx)
	}()
	a.closers.push(func(context.Context) error {
		cancel()
		<-done
		debug.SetGCPercent(before)
		return nil
	})
}

func paceGC(ctx context.Context) {
	tick := time.NewTicker(gcInterval)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	current := lazyGC
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			metrics.Read(sample)
			if next := gcPercent(sample[0].Value.Uint64()); next != current {
				debug.SetGCPercent(next)
				current = next
			}
		}
	}
}

// gcPercent is the pace for so many live bytes.
func gcPercent(live uint64) int {
	if live == 0 {
		return lazyGC
	}
	return int(max(usualGC, min(lazyGC, maxGarbage*100/live)))
}
