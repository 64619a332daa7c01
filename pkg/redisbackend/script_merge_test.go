package redisbackend

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// calls is how often a call is made at once, merged into one.
func (w *walk) calls(buckets []ratelimit.Bucket) int {
	if !mergeable(buckets, indices(buckets)) || w.IntN(3) > 0 {
		return 1
	}
	return pick(w, 2, 2, 3, 5, 20)
}

// twins are two servers' worth of buckets: what is done to one of them call by call is done to the other by merged calls.
type twins struct {
	*walk
	client *redis.Client
	script luaScript
}

// step makes a call as often as said, at one time, on both, and compares all that comes of it.
func (w *twins) step(ctx context.Context, calls int, open bool, buckets []ratelimit.Bucket) error {
	at, others := indices(buckets), make([]ratelimit.Bucket, len(buckets))
	for i, b := range buckets {
		others[i] = b
		others[i].Key = policy.NewKey(policy.Part{Name: "tenant", Value: "twin"}, b.Key.String())
	}
	args := func(b []ratelimit.Bucket) []any {
		return append(appendArgs([]any{"EVALSHA", w.script.sha}, b, at, open), w.now)
	}
	p := w.client.Pipeline()
	var single []*redis.Cmd
	for range calls {
		single = append(single, p.Do(ctx, args(buckets)...))
	}
	merged := args(others)
	if calls > 1 {
		merged = append(merged, calls)
	}
	all := p.Do(ctx, merged...)
	states := make([][2]*redis.StringCmd, len(buckets))
	for i := range buckets {
		states[i] = [2]*redis.StringCmd{p.Get(ctx, buckets[i].Key.String()), p.Get(ctx, others[i].Key.String())}
	}
	_, _ = p.Exec(ctx) // each command has its own error
	for turn, one := range single {
		got, want := make([]ratelimit.Result, len(buckets)), make([]ratelimit.Result, len(buckets))
		if err := readReply(one.Val(), place{1, 1}, buckets, at, want); err != nil {
			return err
		}
		if err := readReply(all.Val(), place{turn + 1, calls}, others, at, got); err != nil {
			return err
		}
		for i := range want {
			if got[i] != want[i] {
				return fmt.Errorf("%+v, call %d of %d:\ngot  %+v\nwant %+v", buckets[i], turn+1, calls, got[i], want[i])
			}
		}
	}
	for i, s := range states {
		if s[0].Val() != s[1].Val() {
			return fmt.Errorf("%+v, %d calls: state %q, one by one %q", buckets[i], calls, s[1].Val(), s[0].Val())
		}
	}
	return nil
}

// TestAMergedCallIsManyCallsInARow compares with the script itself: every answer and every byte that is kept, on long random sequences
// with changes of policies and algorithms, steps of the clock and all the other operations in between.
func TestAMergedCallIsManyCallsInARow(t *testing.T) {
	t.Parallel()
	_, c := scriptServer(t)
	s := underTestClock(t, script.source)
	load(t, c, s)
	for seed, logs := range []bool{false, true} {
		w := &twins{walk: newWalk(uint64(seed), logs), client: c, script: s}
		merged := 0
		for n := range diffCalls() / 3 {
			buckets := w.next()
			calls, open := w.calls(buckets), w.IntN(4) == 0
			require.NoError(t, w.step(t.Context(), calls, open, buckets), "step %d at %d", n, w.now)
			for range calls { // for what is to be undone later
				w.remember(buckets, w.model.call(buckets, open, w.now))
			}
			if calls > 1 {
				merged++
			}
		}
		require.Greater(t, merged, diffCalls()/50)
	}
}

// TestQuotientsAreNotRoundedUp: the script relies on it where it counts how many calls fit.
func TestQuotientsAreNotRoundedUp(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		cost := rapid.Float64Range(1, 1e15).Draw(t, "cost")
		cost = math.Floor(cost)
		k := math.Floor(rapid.Float64Range(1, 1e15/cost).Draw(t, "k"))
		require.Equal(t, k, math.Floor(k*cost/cost))
		require.Equal(t, k-1, math.Floor(math.Nextafter(k*cost, 0)/cost))
	})
}

func TestWhatCannotBeMergedWritesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	_, c := scriptServer(t)
	good := take("good", tokenBucket(10, 1))
	shadow := good
	shadow.Shadow = true
	for name, s := range map[string]struct {
		calls any
		b     ratelimit.Bucket
	}{
		"one call":         {1, good},
		"no call":          {0, good},
		"half a call":      {2.5, good},
		"too many":         {1 << 20, good},
		"not a number":     {"x", good},
		"NaN":              {"nan", good},
		"a shadow bucket":  {2, shadow},
		"an undo":          {2, with(good, ratelimit.Undo, 1)},
		"a refund":         {2, with(good, ratelimit.Refund, 1)},
		"a forced charge":  {2, with(good, ratelimit.Force, 1)},
		"a bucket's reset": {2, with(good, ratelimit.Reset, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			buckets := []ratelimit.Bucket{take("first", tokenBucket(10, 1)), s.b}
			args := append(appendArgs([]any{"EVALSHA", script.sha}, buckets, []int{0, 1}, false), s.calls)
			require.ErrorContains(t, c.Do(ctx, args...).Err(), "ERR acquire: bad ")
			require.Zero(t, c.DBSize(ctx).Val())
		})
	}
}

func TestMergedReplyThatIsNone(t *testing.T) {
	t.Parallel()
	buckets := []ratelimit.Bucket{take("a", tokenBucket(9, 1)), take("b", slidingLog(9, second))}
	admitted := func(n float64) string { return string(appendFloat(nil, n)) }
	some, none := record(1, tokensSize)+record(1, logSize), record(3, tokensSize)+record(2, logSize)
	for name, reply := range map[string]string{
		"nothing": "", "half a head": admitted(2)[1:], "no records": admitted(2), "one too few": admitted(1) + some,
		"one too many": admitted(3) + some + none, "denied though all are admitted": admitted(0) + some + none,
		"more than asked": admitted(4) + some, "fewer than none": admitted(-1) + none, "NaN": admitted(math.NaN()) + some + none,
		"a part of a record": admitted(1) + some + none[1:], "something more": admitted(1) + some + none + "\x00",
		"a single reply": some,
	} {
		t.Run(name, func(t *testing.T) {
			for turn := 1; turn <= 3; turn++ {
				results := make([]ratelimit.Result, 2)
				require.Error(t, readReply(reply, place{turn, 3}, buckets, []int{0, 1}, results))
				require.Equal(t, make([]ratelimit.Result, 2), results, "nothing is told")
			}
		})
	}
	results := make([]ratelimit.Result, 2)
	for turn, outcome := range []ratelimit.Outcome{ratelimit.Admitted, ratelimit.Denied, ratelimit.Denied} {
		require.NoError(t, readReply(admitted(1)+some+none, place{turn + 1, 3}, buckets, []int{0, 1}, results))
		require.Equal(t, outcome, results[1].Outcome)
	}
}

// record is one that says what became of a bucket, and else zeros.
func record(result byte, size int) string {
	r := make([]byte, size)
	r[0] = result
	return string(r)
}
