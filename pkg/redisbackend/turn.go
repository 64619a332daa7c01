package redisbackend

import (
	"context"
	"time"
)

// alone is how long a batch is on its way before the next one goes beside it. Until then what comes gathers for one larger batch, which
// costs this process and Redis less for each call. A call behind a stuck connection still has most of its deadline left.
const alone = 300 * time.Microsecond

// turn is a worker's share in the right to take calls from its node's queue, which one worker has at a time.
type turn struct {
	free chan struct{} // has an element while no worker has the turn
	mine bool
	late *time.Timer // gives it away when the replies are not there in time; nil before the first lend
}

// newTurns makes what the workers of one node share.
func newTurns() chan struct{} {
	free := make(chan struct{}, 1)
	free <- struct{}{}
	return free
}

func newTurn(free chan struct{}) turn { return turn{free: free} }

// take waits until the turn is this worker's. It returns false when ctx has ended before.
func (t *turn) take(ctx context.Context) bool {
	if t.mine {
		return true
	}
	select {
	case <-ctx.Done():
		return false
	case <-t.free:
		t.mine = true
		return true
	}
}

// lend lets the turn go to another worker when alone is over, unless reclaim is called before.
func (t *turn) lend() {
	if t.late != nil {
		t.late.Reset(alone)
		return
	}
	// Not sooner: a timer that is made to be stopped at once gives away a turn that nobody has, should this goroutine stand still between the two.
	free := t.free
	t.late = time.AfterFunc(alone, func() { free <- struct{}{} })
}

// reclaim keeps the turn if it is not gone.
func (t *turn) reclaim() { t.mine = t.late.Stop() }

// pass gives the turn to another worker, if it was not gone.
func (t *turn) pass() {
	if t.mine {
		t.mine = false
		t.free <- struct{}{}
	}
}
