package storetest

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// slow refills next to nothing while a test runs.
const slow = 1e-9

var operationTests = []test{
	{name: "cost", run: func(f *fixture) {
		for _, b := range []ratelimit.Bucket{f.take("tokens", TB(20, slow)), f.take("log", SL(20, time.Hour))} {
			require.InDelta(f, 13, f.admitted(with(b, ratelimit.Take, 7)).Remaining, 0.01)
			f.denied(with(b, ratelimit.Take, 14))
			require.InDelta(f, 0, f.admitted(with(b, ratelimit.Take, 13)).Remaining, 0.01)
			f.denied(b)
		}
		f.admitted(with(f.take("big tokens", TB(1e15-1, 1e9)), ratelimit.Take, 1e15-1))
		f.admitted(with(f.take("big log", SL(1e15-1, time.Hour)), ratelimit.Take, 1e15-1))
		f.denied(f.take("big log", SL(1e15-1, time.Hour)))
	}},
	{name: "peek spends nothing and denies the call if it would be denied", run: func(f *fixture) {
		for _, b := range []ratelimit.Bucket{f.take("tokens", TB(5, slow)), f.take("log", SL(5, time.Hour))} {
			other := f.take("other of "+string(rune('a'+int(b.Limits.Kind))), TB(10, slow))
			for range 20 {
				require.Equal(f, 5.0, f.admitted(with(b, ratelimit.Peek, 5)).Remaining)
			}
			f.admitted(with(b, ratelimit.Take, 3))
			require.InDelta(f, 2, f.denied(with(b, ratelimit.Peek, 3)).Remaining, 0.01)
			r := f.all(other, with(b, ratelimit.Peek, 3))
			require.Equal(f, ratelimit.Admitted, r[0].Outcome)
			require.Equal(f, ratelimit.Denied, r[1].Outcome)
			require.Equal(f, 10.0, f.left(other))
			r = f.all(other, with(b, ratelimit.Peek, 2))
			require.Equal(f, ratelimit.Admitted, r[1].Outcome)
			require.InDelta(f, 9, r[0].Remaining, 0.01)
		}
	}},
	{name: "a shadow bucket takes part in nothing", run: func(f *fixture) {
		enforced := f.take("enforced", TB(3, slow))
		for _, s := range []ratelimit.Bucket{shadow(f.take("tokens", TB(2, slow))), shadow(f.take("log", SL(2, time.Hour)))} {
			f.one(with(enforced, ratelimit.Reset, 1))
			for i := range 6 {
				r := f.all(s, enforced)
				require.Equal(f, i < 3, r[1].Outcome == ratelimit.Admitted, "a shadow denial changes nothing")
				require.Equal(f, i < 2, r[0].Outcome == ratelimit.Admitted)
			}
			f.one(with(s, ratelimit.Reset, 1))
			for range 3 {
				r := f.all(s, enforced)
				require.Equal(f, ratelimit.Denied, r[1].Outcome)
				require.Equal(f, ratelimit.Admitted, r[0].Outcome)
				require.Equal(f, 2.0, r[0].Remaining, "not charged for a denied call")
			}
			require.Equal(f, 2.0, f.left(s))
		}
	}},
	{name: "shadow buckets are charged one by one", run: func(f *fixture) {
		empty, full := shadow(f.take("empty", TB(1, slow))), shadow(f.take("full", TB(9, slow)))
		f.admitted(empty)
		r := f.all(empty, full)
		require.Equal(f, ratelimit.Denied, r[0].Outcome)
		require.Equal(f, 8.0, r[1].Remaining)
	}},
	{name: "a shadow says whether it was charged", run: func(f *fixture) {
		for _, tag := range []string{"same", "other"} {
			enforced := f.take("enforced "+tag, TB(1, slow))
			shadows := []ratelimit.Bucket{shadow(f.take("tokens", TB(9, slow))), shadow(f.take("log", SL(9, time.Hour)))}
			for i := range shadows {
				shadows[i].Key = f.keyIn(tag, fmt.Sprint("shadow ", tag, i))
			}
			charged, peek := f.all(enforced, shadows[0], shadows[1]), shadows[0]
			looked := f.all(enforced, shadows[0], shadows[1])
			require.Equal(f, ratelimit.Denied, looked[0].Outcome)
			for i, s := range shadows {
				require.NotZero(f, charged[i+1].At)
				require.Zero(f, looked[i+1].At)
				require.InDelta(f, 8, looked[i+1].Remaining, 0.01)
				require.InDelta(f, 9, f.admitted(undo(s, charged[i+1])).Remaining, 0.01)
			}
			require.Zero(f, f.admitted(with(peek, ratelimit.Peek, 1)).At)
		}
	}},
	{name: "refund is clamped", run: func(f *fixture) {
		for _, b := range []ratelimit.Bucket{f.take("tokens", TB(5, slow)), f.take("log", SL(5, time.Hour))} {
			require.Equal(f, 5.0, f.admitted(with(b, ratelimit.Refund, 3)).Remaining, "a new bucket is full")
			f.admitted(with(b, ratelimit.Take, 4))
			require.InDelta(f, 3, f.admitted(with(b, ratelimit.Refund, 2)).Remaining, 0.01)
			require.Equal(f, 5.0, f.admitted(with(b, ratelimit.Refund, 1<<63)).Remaining)
			require.Equal(f, 5, f.drain(b))
		}
	}},
	{name: "force goes into debt as far as it may", run: func(f *fixture) {
		b := f.take("tokens", TB(5, slow))
		b.Overdraft = 10
		r := f.admitted(with(b, ratelimit.Force, 7))
		require.InDelta(f, -2, r.Remaining, 0.01)
		require.Zero(f, r.Uncharged)
		r = f.admitted(with(b, ratelimit.Force, 100))
		require.InDelta(f, -10, r.Remaining, 0.01)
		require.Equal(f, uint64(92), r.Uncharged)
		require.Equal(f, uint64(1<<64-1), f.admitted(with(b, ratelimit.Force, 1<<64-1)).Uncharged)
		f.denied(b)
		require.InDelta(f, 2, f.admitted(with(b, ratelimit.Refund, 12)).Remaining, 0.01)
		b.Overdraft = 0
		require.Equal(f, uint64(1), f.admitted(with(b, ratelimit.Force, 3)).Uncharged)
	}},
	{name: "force fills a log up to its limit", run: func(f *fixture) {
		b := f.take("log", SL(5, time.Hour))
		r := f.admitted(with(b, ratelimit.Force, 3))
		require.Equal(f, 2.0, r.Remaining)
		require.Zero(f, r.Uncharged)
		require.Equal(f, uint64(1<<63-2), f.admitted(with(b, ratelimit.Force, 1<<63)).Uncharged)
		require.Zero(f, f.left(b))
		f.denied(b)
	}},
	{name: "reset makes full", run: func(f *fixture) {
		for _, b := range []ratelimit.Bucket{f.take("tokens", TB(5, slow)), f.take("log", SL(5, time.Hour))} {
			require.Equal(f, 5.0, f.admitted(with(b, ratelimit.Reset, 1)).Remaining)
			f.drain(b)
			require.Equal(f, 5.0, f.admitted(with(b, ratelimit.Reset, 1)).Remaining)
			require.Equal(f, 5, f.drain(b))
		}
	}},
	{name: "put leaves what it says, whatever there was", run: func(f *fixture) {
		for _, b := range []ratelimit.Bucket{f.take("tokens", TB(5, slow)), f.take("log", SL(5, time.Hour))} {
			b.Overdraft = 4 // of no concern
			for _, before := range []uint64{0, 2, 5} {
				f.admitted(with(b, ratelimit.Reset, 1))
				f.admitted(with(b, ratelimit.Force, before+1))
				r := f.admitted(with(b, ratelimit.Put, 3))
				require.Equal(f, 2.0, r.Remaining)
				require.Zero(f, r.Uncharged)
				require.Equal(f, 2, f.drain(b))
			}
			r := f.admitted(with(b, ratelimit.Put, 7))
			require.Zero(f, r.Remaining)
			require.Equal(f, uint64(2), r.Uncharged)
			f.denied(b)
			require.Equal(f, 4.0, f.admitted(with(f.take("new", b.Limits), ratelimit.Put, 1)).Remaining)
			f.admitted(with(f.take("new", b.Limits), ratelimit.Reset, 1))
		}
	}},
	{name: "put of another algorithm's bucket", run: func(f *fixture) {
		b := f.take("a", TB(10, slow))
		f.admitted(with(b, ratelimit.Take, 9))
		b = under(b, SL(20, time.Hour))
		require.Equal(f, 17.0, f.admitted(with(b, ratelimit.Put, 3)).Remaining)
		b = under(b, TB(6, slow))
		require.Equal(f, 1.0, f.admitted(with(b, ratelimit.Put, 5)).Remaining)
		require.Equal(f, 1, f.drain(b))
	}},
	{name: "undo gives back what was taken", run: func(f *fixture) {
		for _, b := range []ratelimit.Bucket{f.take("tokens", TB(9, slow)), f.take("log", SL(9, time.Hour))} {
			b.Cost = 4
			r := f.admitted(b)
			f.admitted(with(b, ratelimit.Take, 2))
			require.InDelta(f, 7, f.admitted(undo(b, r)).Remaining, 0.01)
		}
	}},
	{name: "force, refund, undo, reset and put are carried out in a denied call", run: func(f *fixture) {
		l := TB(9, slow)
		drained := f.take("drained", TB(1, slow))
		f.admitted(drained)
		for _, n := range []string{"forced", "refunded", "undone", "reset", "put"} {
			f.admitted(with(f.take(n, l), ratelimit.Take, 5))
		}
		taken := f.admitted(f.take("undone", l))
		r := f.all(with(f.take("forced", l), ratelimit.Force, 2), drained, with(f.take("refunded", l), ratelimit.Refund, 2),
			undo(f.take("undone", l), taken), with(f.take("reset", l), ratelimit.Reset, 1), with(f.take("put", l), ratelimit.Put, 2))
		require.Equal(f, ratelimit.Denied, r[1].Outcome)
		for i, want := range map[int]float64{0: 2, 2: 6, 3: 4, 4: 9, 5: 7} {
			require.Equal(f, ratelimit.Admitted, r[i].Outcome)
			require.InDelta(f, want, r[i].Remaining, 0.01)
		}
		require.InDelta(f, 2, f.left(f.take("forced", l)), 0.01)
		require.InDelta(f, 6, f.left(f.take("refunded", l)), 0.01)
		require.InDelta(f, 4, f.left(f.take("undone", l)), 0.01)
		require.InDelta(f, 9, f.left(f.take("reset", l)), 0.01)
		require.InDelta(f, 7, f.left(f.take("put", l)), 0.01)
	}},
}
