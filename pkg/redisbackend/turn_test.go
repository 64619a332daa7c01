package redisbackend

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// within tells whether t gets its turn before so much time has passed.
func within(t *turn, most time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	return t.take(ctx)
}

func TestTurn(t *testing.T) {
	tests := []struct {
		name     string
		first    func(first *turn)
		keeps    bool          // the first worker
		secondIn time.Duration // the second one gets the turn after so long; 0: not at all
	}{
		{"kept", func(*turn) {}, true, 0},
		{"the replies come in time", func(a *turn) { a.lend(); time.Sleep(alone - 1); a.reclaim() }, true, 0},
		{"the replies come late", func(a *turn) { a.lend(); time.Sleep(2 * alone); a.reclaim() }, false, alone},
		{"passed", func(a *turn) { a.lend(); time.Sleep(alone / 2); a.reclaim(); a.pass() }, false, alone / 2},
		{"passed when it is gone", func(a *turn) { a.lend(); time.Sleep(2 * alone); a.reclaim(); a.pass() }, false, alone},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				free := newTurns()
				first, second := newTurn(free), newTurn(free)
				require.True(t, within(&first, 1))
				began, got := time.Now(), time.Duration(0)
				var done sync.WaitGroup
				done.Go(func() {
					if within(&second, time.Second) {
						got = time.Since(began)
					}
				})
				test.first(&first)
				done.Wait()
				require.Equal(t, test.secondIn, got)
				require.Equal(t, test.keeps, within(&first, time.Second), "the first has it now")
				require.False(t, within(&turn{free: free}, time.Second), "there is one turn")
			})
		})
	}
}

// TestTurnsAreNeverLost has workers with batches of any duration, some of which pass the turn: one at a time takes calls, and it goes on for ever.
func TestTurnsAreNeverLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := newTurns()
		random := rand.New(rand.NewPCG(1, 2))
		var taking atomic.Int32
		var workers sync.WaitGroup
		for range 3 {
			mine, draw := newTurn(free), rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
			workers.Go(func() {
				for range 1000 {
					if !within(&mine, time.Minute) {
						t.Error("nobody has the turn")
						return
					}
					if taking.Add(1) != 1 {
						t.Error("two have the turn")
					}
					time.Sleep(time.Duration(draw.IntN(3)) * alone / 10)
					taking.Add(-1)
					mine.lend()
					time.Sleep(time.Duration(draw.IntN(20)) * alone / 10)
					mine.reclaim()
					if draw.IntN(4) == 0 {
						mine.pass()
					}
				}
				mine.pass()
			})
		}
		workers.Wait()
		last := newTurn(free)
		require.True(t, within(&last, alone))
		require.False(t, within(&turn{free: free}, time.Second), "there is one turn")
	})
}

// TestATurnBeginsWithoutATimer: one that is made and stopped can fire in between, when the machine is busy, and then there is a turn too many: a worker that
// passes its own waits for ever, and so does close.
func TestATurnBeginsWithoutATimer(t *testing.T) {
	free := newTurns()
	mine := newTurn(free)
	require.True(t, within(&mine, time.Second))
	require.Nil(t, mine.late)
	mine.lend()
	require.NotNil(t, mine.late)
	mine.reclaim()
	mine.pass()
}
