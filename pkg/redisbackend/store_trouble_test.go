package redisbackend_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// trouble is a store whose cluster is in trouble all the time. It makes a call again, as long as that says that it was not carried out.
type trouble struct {
	*redisbackend.Store
	cluster *redistest.Cluster
	slot    atomic.Int64 // of the last call, where trouble is felt
	failed  atomic.Int64 // calls

	failedOver time.Time
}

// begin makes trouble again and again until the test ends.
func (s *trouble) begin(t *testing.T, once func(*trouble, context.Context) error) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			ctx, cancel := context.WithTimeout(context.Background(), patient)
			err = once(s, ctx)
			cancel()
		}
		done <- err
	}()
	t.Cleanup(func() {
		close(stop)
		require.NoError(t, <-done)
		t.Logf("%d calls failed", s.failed.Load())
	})
}

func (s *trouble) flush(ctx context.Context) error {
	time.Sleep(5 * time.Millisecond) // lest there be no script at all, ever
	return s.all(ctx, "SCRIPT", "FLUSH")
}

// move moves the slot, with half of its keys first.
func (s *trouble) move(ctx context.Context) error {
	slot := int(s.slot.Load())
	to, err := elsewhere(ctx, s.cluster, slot)
	if err != nil {
		return err
	}
	m, err := s.cluster.MigrateSlot(ctx, slot, to)
	if err != nil {
		return err
	}
	reply, err := m.From.Do(ctx, "CLUSTER", "GETKEYSINSLOT", slot, 100)
	if err != nil {
		return err
	}
	keys := reply.([]any)
	for _, key := range keys[len(keys)/2:] {
		if err := m.Move(ctx, key.(string)); err != nil {
			return err
		}
	}
	return m.Finish(ctx)
}

// failover lets a replica take over, which nodes vote for once in twice the node timeout.
func (s *trouble) failover(ctx context.Context) error {
	if !s.failedOver.IsZero() && time.Since(s.failedOver) < 3*troubledTimeout {
		time.Sleep(time.Millisecond)
		return nil
	}
	primary, err := s.cluster.Owner(ctx, int(s.slot.Load()))
	if err != nil {
		return err
	}
	_, err = s.cluster.Failover(ctx, primary)
	s.failedOver = time.Now()
	return err
}

const troubledTimeout = 2 * time.Second

// fill leaves no memory for a while.
func (s *trouble) fill(ctx context.Context) error {
	for _, most := range []int{1, 0} {
		if err := s.all(ctx, "CONFIG", "SET", "maxmemory", most); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

func (s *trouble) all(ctx context.Context, command ...any) error {
	primaries, err := s.cluster.Primaries(ctx)
	if err != nil {
		return err
	}
	for _, p := range primaries {
		if _, err := p.Do(ctx, command...); err != nil {
			return err
		}
	}
	return nil
}

// Acquire implements ratelimit.Store.
func (s *trouble) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if len(buckets) > 0 {
		s.slot.Store(int64(redisbackend.Slot(buckets[0].Key.Bytes())))
	}
	for {
		results = s.Store.Acquire(ctx, buckets, results)
		if ctx.Err() != nil || !undecided(results) {
			return results
		}
		s.failed.Add(1)
		s.giveBack(buckets, results)
		time.Sleep(time.Millisecond)
	}
}

// undecided reports whether some buckets were not decided, and nothing was done to them.
func undecided(results []ratelimit.Result) bool {
	some := false
	for _, r := range results {
		if r.Err == nil {
			continue
		}
		var e *redisbackend.Error
		if !errors.As(r.Err, &e) || e.MayHaveRun {
			return false
		}
		some = true
	}
	return some
}

// giveBack undoes what was taken from other slots, as whoever answers for the failed ones does.
func (s *trouble) giveBack(buckets []ratelimit.Bucket, results []ratelimit.Result) {
	var undo []ratelimit.Bucket
	for i, r := range results {
		switch b := buckets[i]; {
		case r.Err == nil && r.Outcome == ratelimit.Denied && !b.Shadow:
			return // the store has done it
		case r.Err == nil && r.Outcome == ratelimit.Admitted && b.Op == ratelimit.Take:
			b.Op, b.Before, b.At = ratelimit.Undo, r.Before, r.At
			undo = append(undo, b)
		}
	}
	for _, b := range undo {
		for undecided(s.Store.Acquire(context.Background(), []ratelimit.Bucket{b}, nil)) {
			time.Sleep(time.Millisecond)
		}
	}
}
