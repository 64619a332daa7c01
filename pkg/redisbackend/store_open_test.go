package redisbackend_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// oneLeft are limits of one in a day.
var oneLeft = []algorithm.Limits{storetest.TB(1, 1./(24*60)), storetest.SL(1, 24*time.Hour)}

// beforeMarksEnd repeats what has to be over before a mark has passed, on keys of its own, until it was: the machine may be busy.
func beforeMarksEnd(t *testing.T, attempt func(name string)) {
	t.Helper()
	for n := range 20 {
		began := time.Now()
		attempt(fmt.Sprint(t.Name(), n))
		if time.Since(began) < 900*time.Millisecond {
			return
		}
	}
	t.Fatal("it never took less than a second")
}

// TestDeniedForWantOfWhatIsGivenBack: while a call waits for one node, it holds the last of a bucket on another. Who wants that meanwhile is
// told to come back soon, and gets it then, since the call is denied.
func TestDeniedForWantOfWhatIsGivenBack(t *testing.T) {
	cluster := shared.Cluster(t)
	nodeTimeout(t, cluster, time.Minute)
	s := open(t, redisbackend.Options{URLs: cluster.URLs(), Timeout: patient, ConnectionTimeout: patient})
	other := open(t, redisbackend.Options{URLs: cluster.URLs(), Timeout: patient})
	for _, l := range oneLeft {
		t.Run(l.Kind.String(), func(t *testing.T) {
			var last ratelimit.Bucket
			var r ratelimit.Result
			beforeMarksEnd(t, func(name string) {
				keys := keysApart(t, s, name, 2)
				drained := take(keys[0])
				last = take(keys[1])
				last.Limits = l
				all := drained
				all.Cost = 100
				require.Equal(t, ratelimit.Admitted, eventually(t, s, all).Outcome)
				node, err := cluster.Primary(t.Context(), drained.Key.String())
				require.NoError(t, err)
				require.NoError(t, node.Pause())
				defer func() { _ = node.Resume() }()
				done := make(chan []ratelimit.Result)
				go func() { done <- s.Acquire(t.Context(), []ratelimit.Bucket{drained, last}, nil) }()
				r = deniedLook(t, other, last)
				require.NoError(t, node.Resume())
				results := <-done
				require.Equal(t, ratelimit.Denied, results[0].Outcome)
				require.False(t, results[0].Tentative, "nothing is open there")
			})
			require.True(t, r.Tentative)
			require.Positive(t, r.Wait)
			require.LessOrEqual(t, r.Wait, time.Second)
			time.Sleep(r.Wait) // as it was told
			require.Equal(t, ratelimit.Admitted, one(t.Context(), other, last).Outcome)
			r = one(t.Context(), other, last)
			require.Equal(t, ratelimit.Denied, r.Outcome)
			require.False(t, r.Tentative, "that take stands")
			require.Greater(t, r.Wait, 23*time.Hour)
		})
	}
}

// deniedLook looks at a bucket until it denies.
func deniedLook(t *testing.T, s ratelimit.Store, b ratelimit.Bucket) (r ratelimit.Result) {
	t.Helper()
	b.Op = ratelimit.Peek
	require.Eventually(t, func() bool { r = one(context.Background(), s, b); return r.Outcome == ratelimit.Denied }, patient, time.Millisecond)
	return r
}

// TestWhatIsOpen: takes are open only if another slot has a say in what becomes of them.
func TestWhatIsOpen(t *testing.T) {
	s := open(t, redisbackend.Options{URLs: shared.Cluster(t).URLs(), Timeout: patient})
	for name, test := range map[string]struct {
		sibling func(*ratelimit.Bucket)
		want    bool
	}{
		"a take elsewhere":   {func(*ratelimit.Bucket) {}, true},
		"a peek elsewhere":   {func(b *ratelimit.Bucket) { b.Op = ratelimit.Peek }, true},
		"a shadow elsewhere": {func(b *ratelimit.Bucket) { b.Shadow = true }, false},
		"a force elsewhere":  {func(b *ratelimit.Bucket) { b.Op = ratelimit.Force }, false},
		"a take in the slot": {nil, false},
	} {
		for _, l := range oneLeft {
			t.Run(name+", "+l.Kind.String(), func(t *testing.T) {
				var r ratelimit.Result
				beforeMarksEnd(t, func(name string) {
					keys := keysApart(t, s, name, 2)
					b, sibling := take(keys[0]), take(keys[1])
					b.Limits = l
					if test.sibling == nil {
						b.Key, sibling.Key = key(name, "taken"), key(name, "sibling")
					} else {
						test.sibling(&sibling)
					}
					for _, r := range s.Acquire(t.Context(), []ratelimit.Bucket{b, sibling}, nil) {
						require.Equal(t, ratelimit.Admitted, r.Outcome)
					}
					r = one(t.Context(), s, b)
				})
				require.Equal(t, ratelimit.Denied, r.Outcome)
				require.Equal(t, test.want, r.Tentative)
			})
		}
	}
}

// TestWhatIsUndoable: a take that somebody else may deny is open, too.
func TestWhatIsUndoable(t *testing.T) {
	s := open(t, redisbackend.Options{URLs: []string{redistest.StartStandalone(t).URL()}, Timeout: patient})
	for _, l := range oneLeft {
		t.Run(l.Kind.String(), func(t *testing.T) {
			var b ratelimit.Bucket
			var denied, after ratelimit.Result
			beforeMarksEnd(t, func(name string) {
				b = take(key(name, "undoable"))
				b.Limits, b.Undoable = l, true
				took := one(t.Context(), s, b)
				require.Equal(t, ratelimit.Admitted, took.Outcome)
				denied = one(t.Context(), s, b)
				undo := b
				undo.Op, undo.Before, undo.At = ratelimit.Undo, took.Before, took.At
				require.NoError(t, one(t.Context(), s, undo).Err)
				after = one(t.Context(), s, b)
			})
			require.Equal(t, ratelimit.Denied, denied.Outcome)
			require.True(t, denied.Tentative)
			require.LessOrEqual(t, denied.Wait, time.Second)
			require.Equal(t, ratelimit.Admitted, after.Outcome)
		})
	}
}
