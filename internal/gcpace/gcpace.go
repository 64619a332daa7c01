// Package gcpace has a process collect its garbage seldom, in bounded memory: while it collects, the calls under way wait.
package gcpace

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

const (
	// lazy lets garbage grow to four times what is alive, in percent. Each collection costs the calls under way: about a tenth of the CPU per
	// call less was measured than with Go's own pace.
	lazy, usual = 400, 100
	// mostGarbage is how many bytes of garbage lazy may let pile up. Millions of buckets are alive and would allow for far more.
	mostGarbage = 256 << 20
	// interval bounds for how long the pace is that of a process that had less alive.
	interval = 5 * time.Second
	// ofContainer is the share of a container's memory that Go may use: what it does not count, such as the program itself, has the rest.
	ofContainer = 0.9
)

// LimitMemory has Go keep to the memory limit of the container that the process runs in, so that near it garbage is collected more often, in
// place of the process being killed. GOMEMLIMIT in the environment, which Go itself reads, comes first. It returns the limit in force; 0: none.
// It is for main: it is not taken back.
func LimitMemory() (limit int64, err error) { return limitMemory(memlimit.FromCgroup) }

func limitMemory(container memlimit.Provider) (limit int64, err error) {
	_, err = memlimit.Set(memlimit.WithRatio(ofContainer), memlimit.WithProvider(container))
	if errors.Is(err, memlimit.ErrNoCgroup) || errors.Is(err, memlimit.ErrCgroupsNotSupported) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("find out the container's memory limit: %w; set GOMEMLIMIT to nine tenths of it", err)
	}
	return limitInForce(), err
}

// limitInForce is 0 if there is none.
func limitInForce() int64 {
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		return limit
	}
	return 0
}

// Start paces the garbage collector until stop is called, unless the environment does.
func Start() (stop func()) {
	if _, set := os.LookupEnv("GOGC"); set {
		return func() {}
	}
	before := debug.SetGCPercent(lazy)
	end := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { pace(end) })
	return func() {
		close(end)
		done.Wait()
		debug.SetGCPercent(before)
	}
}

func pace(end <-chan struct{}) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	current := lazy
	for {
		select {
		case <-end:
			return
		case <-tick.C:
			metrics.Read(sample)
			if next := percent(sample[0].Value.Uint64(), limitInForce()); next != current {
				debug.SetGCPercent(next)
				current = next
			}
		}
	}
}

// percent is the pace for so many live bytes, and a limit of all memory, if there is one. Garbage has at most half of that, or as much as is
// alive if that is more.
func percent(live uint64, limit int64) int {
	if live == 0 {
		return lazy
	}
	garbage := uint64(mostGarbage)
	if limit > 0 {
		garbage = min(garbage, uint64(limit)/2)
	}
	return int(max(usual, min(lazy, garbage*100/live)))
}
