package fallback_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
)

// register is where instances say that they live.
type register struct {
	mu   sync.Mutex
	last map[string]time.Time
	down bool
}

func (r *register) beat(_ context.Context, id string) ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return nil, errGone
	}
	r.last[id] = time.Now()
	ids := []string{id}
	for other, at := range r.last {
		if other != id && time.Since(at) <= life {
			ids = append(ids, other)
		}
	}
	return ids, nil
}

func (r *register) set(down, empty bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down = down; empty {
		r.last = map[string]time.Time{}
	}
}

const life = 6 * time.Second

// member runs an instance until the test ends, or stop is called.
func (r *register) member(t *testing.T, id string, least int) (f *fallback.Fleet, stop func()) {
	f = fallback.NewFleet(fallback.FleetOptions{ID: id, Beat: r.beat, Life: life, Least: least})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return f, stop
}

func requireFleet(t *testing.T, fleet []*fallback.Fleet) {
	t.Helper()
	for i, f := range fleet {
		require.Equal(t, fallback.Instances{Count: len(fleet), Index: i}, f.Instances())
	}
}

func TestFleet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &register{last: map[string]time.Time{}}
		var fleet []*fallback.Fleet
		var stops []func()
		for _, id := range []string{"a", "b", "c", "d"} {
			f, stop := r.member(t, id, 0)
			fleet, stops = append(fleet, f), append(stops, stop)
		}
		time.Sleep(2500 * time.Millisecond)
		requireFleet(t, fleet)

		r.set(true, false)
		time.Sleep(time.Hour)
		requireFleet(t, fleet)

		r.set(false, true) // restarted, and empty
		for range 100 {
			time.Sleep(100 * time.Millisecond)
			requireFleet(t, fleet)
		}

		stops[1]() // has left
		time.Sleep(5 * time.Second)
		require.Equal(t, 4, fleet[0].Instances().Count)
		time.Sleep(10 * time.Second)
		requireFleet(t, slices.Delete(slices.Clone(fleet), 1, 2))
	})
}

// TestFleetFlapping: nobody is taken for gone by a store that comes and goes and forgets.
func TestFleetFlapping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &register{last: map[string]time.Time{}}
		var fleet []*fallback.Fleet
		for _, id := range []string{"a", "b", "c"} {
			f, _ := r.member(t, id, 0)
			fleet = append(fleet, f)
		}
		time.Sleep(2500 * time.Millisecond)
		for range 30 {
			r.set(true, true)
			time.Sleep(2 * time.Second)
			r.set(false, false)
			time.Sleep(2 * time.Second)
			requireFleet(t, fleet)
		}
	})
}

func TestFleetWithoutTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &register{down: true, last: map[string]time.Time{}}
		alone, _ := r.member(t, "a", 0)
		told, _ := r.member(t, "b", 3)
		time.Sleep(time.Minute)
		require.Equal(t, fallback.Instances{Count: 1, Index: 0}, alone.Instances())
		require.Equal(t, fallback.Instances{Count: 3, Index: -1}, told.Instances())
		require.False(t, alone.Met())
		r.set(false, false)
		time.Sleep(2300 * time.Millisecond) // never met: it tries more often
		require.True(t, alone.Met())
		require.Equal(t, fallback.Instances{Count: 2, Index: 0}, alone.Instances())
		require.Equal(t, fallback.Instances{Count: 3, Index: 1}, told.Instances(), "at least so many")
	})
}
