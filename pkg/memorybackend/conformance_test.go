package memorybackend_test

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// manualClock is a store's clock that a test moves.
type manualClock struct{ us atomic.Int64 }

// now lets others run, so that a call that does not hold its locks meanwhile is found out.
func (c *manualClock) now() int64 {
	runtime.Gosched()
	return c.us.Load()
}

func (c *manualClock) advance(d time.Duration)  { c.us.Add(d.Microseconds()) }
func (c *manualClock) stepBack(d time.Duration) { c.us.Add(-d.Microseconds()) }

// TestConformanceByTheDefaultClock is what the suite can ask of a store whose clock runs by itself.
func TestConformanceByTheDefaultClock(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		return storetest.Harness{Store: memorybackend.New(memorybackend.Options{}), AcrossTags: true, ReportsAt: true}
	})
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness {
		clock := &manualClock{}
		clock.us.Store(1)
		return storetest.Harness{
			Store:      memorybackend.New(memorybackend.Options{Now: clock.now}),
			Advance:    clock.advance,
			StepBack:   clock.stepBack,
			AcrossTags: true,
			ReportsAt:  true,
		}
	})
}
