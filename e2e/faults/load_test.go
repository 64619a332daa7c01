package faults_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

func TestLoadKeepsItsPace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context, n int, _ faults.Call) (harness.Answer, error) {
			switch n {
			case 0: // later ones do not wait for it
				time.Sleep(700 * time.Millisecond)
				return harness.Answer{Source: "open"}, nil
			case 1:
				<-ctx.Done()
				return harness.Answer{}, ctx.Err()
			}
			time.Sleep(time.Millisecond)
			return harness.Answer{Allowed: true, Source: "store"}, nil
		}
		l := faults.StartLoad(faults.LoadOptions{
			PerSecond: 2000,
			Next:      func(n int) faults.Call { return faults.Call{Shard: n % 4} },
			Ask:       slow,
		}, nil)
		time.Sleep(500*time.Millisecond + time.Microsecond)
		require.Equal(t, 500*time.Millisecond+time.Microsecond, l.Mark("half"))
		time.Sleep(500 * time.Millisecond)
		require.Len(t, l.Recent(500*time.Millisecond), 999, "one is under way")
		r := l.Stop()

		require.Len(t, r.Decisions, 2001)
		for n, d := range r.Decisions {
			require.Equal(t, time.Duration(n)*500*time.Microsecond, d.Due)
			require.Zero(t, d.Late)
			require.Equal(t, n%4, d.Shard)
		}
		require.Equal(t, 700*time.Millisecond, r.Decisions[0].Took)
		require.Equal(t, "open", r.Decisions[0].Source)
		require.ErrorIs(t, r.Decisions[1].Err, context.DeadlineExceeded, "it hung")
		require.Equal(t, faults.CallTimeout, r.Decisions[1].Took)
		require.Equal(t, time.Millisecond, faults.Quantile(r.Select(faults.Span{To: time.Hour}), 0.5))
		require.Equal(t, []faults.Mark{{At: 500*time.Millisecond + time.Microsecond, What: "half"}}, r.Marks)
	})
}

// TestLoadCountsFromTheDueTime: a call that cannot be made in time is late from the time at which it was due.
func TestLoadCountsFromTheDueTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := faults.StartLoad(faults.LoadOptions{
			PerSecond: 1000,
			Next: func(n int) faults.Call {
				if n == 10 {
					time.Sleep(50 * time.Millisecond) // whoever makes the calls is held up
				}
				return faults.Call{}
			},
			Ask: func(context.Context, int, faults.Call) (harness.Answer, error) {
				return harness.Answer{}, errors.New("no")
			},
		}, nil)
		time.Sleep(100*time.Millisecond + time.Microsecond)
		r := l.Stop()
		require.Len(t, r.Decisions, 101, "what was missed is made up for")
		require.Equal(t, 50*time.Millisecond, r.Decisions[10].Took)
		require.Equal(t, 50*time.Millisecond, r.Decisions[10].Late)
		require.Equal(t, 20*time.Millisecond, r.Decisions[40].Late)
		require.Zero(t, r.Decisions[60].Late)
		require.Error(t, r.CheckAnswered())
	})
}

func TestWitness(t *testing.T) {
	t.Parallel()
	w, err := faults.StartWitness()
	require.NoError(t, err)
	asked, once := make(chan struct{}), sync.Once{}
	l := faults.StartLoad(faults.LoadOptions{
		PerSecond: 10,
		Next:      func(int) faults.Call { return faults.Call{} },
		Ask: func(context.Context, int, faults.Call) (harness.Answer, error) {
			once.Do(func() { close(asked) })
			return harness.Answer{Source: "store"}, w.Freeze(100 * time.Millisecond)
		},
	}, w)
	<-asked
	r := l.Stop()
	require.NoError(t, w.Stop())
	require.NotEmpty(t, r.Decisions)
	stalled := time.Duration(0)
	for _, s := range r.Stalls {
		stalled += s.To - s.From
	}
	require.GreaterOrEqual(t, stalled, 90*time.Millisecond, "%v", r.Stalls)
}
