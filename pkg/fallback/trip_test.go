package fallback_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// TestRegrets: the store is told which of its failed calls belong to a request that was denied.
func TestRegrets(t *testing.T) {
	dead := func(m policy.FailureMode) ratelimit.Bucket { return take("dead", tokens, m) }
	good, empty := take("good", tokens, policy.Closed), take("empty", tokens, policy.Closed)
	for name, tt := range map[string]struct {
		buckets []ratelimit.Bucket
		want    int
	}{
		"denied by a mode":           {[]ratelimit.Bucket{good, dead(policy.Closed)}, 1},
		"denied by the store":        {[]ratelimit.Bucket{empty, dead(policy.Open)}, 1},
		"admitted":                   {[]ratelimit.Bucket{good, dead(policy.Open)}, 0},
		"a shadow's denial is none":  {[]ratelimit.Bucket{good, shadow(dead(policy.Closed))}, 0},
		"a shadow of a denied one's": {[]ratelimit.Bucket{empty, shadow(dead(policy.Closed))}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testRegrets(t, tt.buckets, tt.want) })
		})
	}
}

func testRegrets(t *testing.T, buckets []ratelimit.Bucket, want int) {
	s := failing("dead")
	three := take("empty", tokens, policy.Closed)
	three.Op, three.Cost = ratelimit.Force, 3
	s.Store.Acquire(t.Context(), []ratelimit.Bucket{three}, nil)
	regrets, withheld := 0, 0
	f := fallback.New(fallback.Options{
		Store: s, Shard: func(key []byte) string { return string(key) },
		Regret:     func(err error) { require.ErrorIs(t, err, errGone); regrets++ },
		OnWithheld: func() { withheld++ },
	})
	defer f.Close()
	f.Acquire(t.Context(), buckets, nil)
	require.Equal(t, want, regrets)
	require.Zero(t, withheld)
	for range 2 {
		f.Acquire(t.Context(), buckets[1:], nil)
	}
	before := regrets
	f.Acquire(t.Context(), buckets, nil)
	require.Equal(t, before, regrets, "what was not sent is not regretted")
	require.Equal(t, 1, withheld)
}

// TestManyAtOnce: breakers open and close under many calls at once, and each has its answer.
func TestManyAtOnce(t *testing.T) {
	b := newBreakers()
	stop := make(chan struct{})
	var callers, changes sync.WaitGroup
	for i := range 8 {
		callers.Go(func() {
			var results []ratelimit.Result
			one, two := take(fmt.Sprint("a-", i), tokens, policy.Closed), take(fmt.Sprint("b-", i), tokens, policy.Open)
			for range 3000 {
				results = b.Acquire(context.Background(), []ratelimit.Bucket{one, two}, results)
				for _, r := range results {
					if r.Err != nil || r.Outcome == 0 {
						t.Errorf("no answer: %+v", r)
					}
				}
			}
		})
	}
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			b.store.set([]string{"a", "b"}[i%2], []error{errRefused, nil}[i/2%2])
			b.Shards()
		}
	})
	callers.Wait()
	close(stop)
	changes.Wait()
	b.Close()
	b.store.set("a", nil)
	b.store.set("b", nil)
	require.Eventually(t, func() bool { return b.call("a-1", "b-1")[1] == "store" && b.call("a-1")[0] == "store" }, 5*time.Second, time.Millisecond)
}

// TestWhatIsUndoable: the store is told which takes may be given back, since a bucket that it is not asked for may deny.
func TestWhatIsUndoable(t *testing.T) {
	good := take("good", tokens, policy.Closed)
	for name, tt := range map[string]struct {
		other ratelimit.Bucket
		want  bool
	}{
		"local":            {take("dead", tokens, policy.Local), true},
		"open":             {take("dead", tokens, policy.Open), false},
		"a shadow":         {shadow(take("dead", tokens, policy.Local)), false},
		"a report":         {with(take("dead", tokens, policy.Local), ratelimit.Force), false},
		"one that answers": {take("fine", tokens, policy.Local), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := failing("dead")
			var last []ratelimit.Bucket
			f := fallback.New(fallback.Options{
				Store: noting{s, &last}, Shard: func(key []byte) string { return string(key) },
			})
			defer f.Close()
			for range 3 {
				f.Acquire(t.Context(), []ratelimit.Bucket{take("dead", tokens, policy.Open)}, nil)
			}
			for _, asked := range []ratelimit.Bucket{good, shadow(good)} {
				f.Acquire(t.Context(), []ratelimit.Bucket{asked, tt.other}, nil)
				require.Equal(t, good.Key, last[0].Key)
				require.Equal(t, tt.want, last[0].Undoable)
			}
		})
	}
}

// noting is a store that notes the buckets of the last call.
type noting struct {
	ratelimit.Store
	last *[]ratelimit.Bucket
}

func (n noting) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	*n.last = append([]ratelimit.Bucket(nil), buckets...)
	return n.Store.Acquire(ctx, buckets, results)
}
