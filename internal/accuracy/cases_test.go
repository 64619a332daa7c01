package accuracy_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// at is an entry about bucket 0.
func at(start, end int64, op accuracy.Op, cost uint64, outcome accuracy.Outcome) accuracy.Entry {
	return accuracy.Entry{
		Start: start, End: end, Op: op, Cost: cost, Outcome: outcome, Passed: outcome == accuracy.Admitted, Source: accuracy.FromStore, Left: nan,
	}
}

func leaves(e accuracy.Entry, left float64) accuracy.Entry {
	e.Left = left
	return e
}

func refused(e accuracy.Entry, call uint64, bucket uint32) accuracy.Entry {
	e.Call, e.Bucket, e.Passed = call, bucket, false
	return e
}

func ofCall(e accuracy.Entry, call uint64, bucket uint32) accuracy.Entry {
	e.Call, e.Bucket = call, bucket
	return e
}

func from(s accuracy.Source, e accuracy.Entry) accuracy.Entry {
	e.Source = s
	return e
}

// promiseOf is a bucket of one that is taken, a denial that promises 4 ms, and one at a time after that.
func promiseOf(denied, again int64) []accuracy.Entry {
	first := at(denied, denied+1, accuracy.Take, 1, accuracy.Denied)
	first.Wait = 4_000_000
	return []accuracy.Entry{at(0, 0, accuracy.Take, 1, accuracy.Admitted), first, at(again, again, accuracy.Take, 1, accuracy.Denied)}
}

// TestCases are small records, and what is found in them. Entries without a call number are calls of their own.
func TestCases(t *testing.T) {
	const ms, admitted, denied = 1_000_000, accuracy.Admitted, accuracy.Denied
	one, five := tokens(1, 0), tokens(5, 0)
	window := log(1, 10*time.Millisecond)
	held := []accuracy.Entry{ // of the first bucket for a moment, since the second one denies
		refused(at(0, 100, accuracy.Take, 1, admitted), 7, 0), refused(at(0, 100, accuracy.Take, 6, denied), 7, 1),
	}
	for _, test := range []struct {
		name    string
		record  accuracy.Record
		entries []accuracy.Entry
		want    []accuracy.Kind
	}{
		{"a window apart", bucketsOf(window), []accuracy.Entry{at(0, 0, accuracy.Take, 1, admitted), at(10*ms, 10*ms, accuracy.Take, 1, admitted)}, nil},
		{"a step less", bucketsOf(window), []accuracy.Entry{at(0, 0, accuracy.Take, 1, admitted), at(10*ms-1, 10*ms-1, accuracy.Take, 1, admitted)}, nil},
		{
			"two steps less", bucketsOf(window),
			[]accuracy.Entry{at(0, 0, accuracy.Take, 1, admitted), at(10*ms-2, 10*ms-2, accuracy.Take, 1, admitted)},
			[]accuracy.Kind{accuracy.TooMuch},
		},
		{"what is left after a charge", bucketsOf(five), []accuracy.Entry{leaves(at(0, 1, accuracy.Take, 2, admitted), 3)}, nil},
		{"too much of it", bucketsOf(five), []accuracy.Entry{leaves(at(0, 1, accuracy.Take, 2, admitted), 4)}, []accuracy.Kind{accuracy.ReadsTooMuch}},
		{"too little of it", bucketsOf(five), []accuracy.Entry{leaves(at(0, 1, accuracy.Take, 2, admitted), 2)}, []accuracy.Kind{accuracy.ReadsTooLittle}},
		{"denied without a reason", bucketsOf(one, five), []accuracy.Entry{at(50, 60, accuracy.Take, 1, denied)}, []accuracy.Kind{accuracy.WronglyDenied}},
		{"denied while another one holds it", bucketsOf(one, five), append(held, at(50, 60, accuracy.Take, 1, denied)), nil},
		{
			"denied when nobody can hold it any more", bucketsOf(one, five), append(held, at(2e9, 2e9, accuracy.Take, 1, denied)),
			[]accuracy.Kind{accuracy.WronglyDenied},
		},
		{"a call that failed may have been charged", bucketsOf(one), []accuracy.Entry{at(0, 1, accuracy.Take, 1, accuracy.Unknown), at(5, 6, accuracy.Take, 1, denied)}, nil},
		{
			"given back while full, and then taken", bucketsOf(one),
			[]accuracy.Entry{at(0, 1, accuracy.Refund, 5, admitted), at(2, 3, accuracy.Take, 1, admitted), at(3, 4, accuracy.Take, 1, admitted)},
			[]accuracy.Kind{accuracy.TooMuch},
		},
		{"given back in between", bucketsOf(one), []accuracy.Entry{at(2, 3, accuracy.Take, 1, admitted), at(3, 4, accuracy.Refund, 1, admitted), at(5, 6, accuracy.Take, 1, admitted)}, nil},
		{"admitted and denied", bucketsOf(one, five), []accuracy.Entry{
			refused(at(0, 1, accuracy.Take, 1, admitted), 7, 0), refused(at(0, 1, accuracy.Take, 1, admitted), 7, 1),
		}, []accuracy.Kind{accuracy.Split}},
		{"passed by one bucket and not by the other", bucketsOf(one, five), []accuracy.Entry{
			ofCall(at(0, 1, accuracy.Take, 1, admitted), 7, 0), refused(at(0, 1, accuracy.Take, 1, admitted), 7, 1),
		}, []accuracy.Kind{accuracy.Split}},
		{"shares that are too large", bucketsOf(one), []accuracy.Entry{
			from(accuracy.FromLocal, at(0, 1, accuracy.Take, 1, admitted)), from(accuracy.FromLocal, at(2, 3, accuracy.Take, 1, admitted)),
		}, []accuracy.Kind{accuracy.TooMuch}},
		{"a share of what the store does not know of yet", bucketsOf(one), []accuracy.Entry{
			from(accuracy.FromLocal, at(0, 1, accuracy.Take, 1, admitted)), leaves(at(2, 3, accuracy.Take, 1, admitted), 0),
		}, nil},
		{"the store has been charged for it", bucketsOf(one), []accuracy.Entry{
			from(accuracy.FromLocal, at(0, 1, accuracy.Take, 1, admitted)), leaves(at(ms, ms+1, accuracy.Take, 1, denied), 0),
		}, nil},
		{"a share for which nobody can be charged any more", bucketsOf(one, five), []accuracy.Entry{
			from(accuracy.FromLocal, refused(at(0, 1, accuracy.Take, 1, denied), 7, 0)), at(2e9, 2e9, accuracy.Take, 1, denied),
		}, []accuracy.Kind{accuracy.WronglyDenied}},
		{"too much by the store, whatever the shares did", bucketsOf(one), []accuracy.Entry{
			from(accuracy.FromLocal, at(0, 1, accuracy.Take, 1, admitted)), at(2, 3, accuracy.Take, 1, admitted), at(4, 5, accuracy.Take, 1, admitted),
		}, []accuracy.Kind{accuracy.TooMuch}},
		{"given back to a share", bucketsOf(one), []accuracy.Entry{
			from(accuracy.FromLocal, at(0, 1, accuracy.Take, 1, admitted)), from(accuracy.FromLocal, at(2, 3, accuracy.Refund, 1, admitted)),
			from(accuracy.FromLocal, at(4, 5, accuracy.Take, 1, admitted)),
		}, nil},
		{"denied a step before what was promised", bucketsOf(window), promiseOf(ms, 5*ms), nil},
		{"denied when it was promised", bucketsOf(window), promiseOf(ms, 5*ms+2), []accuracy.Kind{accuracy.BrokenPromise}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := test.record
			for i, e := range test.entries {
				if e.Call == 0 {
					e.Call = uint64(100 + i)
				}
				r.Entries = append(r.Entries, e)
			}
			v, err := accuracy.Check(&r, exact)
			require.NoError(t, err)
			for _, f := range v.Findings {
				require.NotEmpty(t, f.Calls)
			}
			require.Equal(t, test.want, kinds(v), "%v", v.Err())
		})
	}
}

// TestFaultsExplain: with what a fault may have given, what it did is no finding; with less it is.
func TestFaultsExplain(t *testing.T) {
	for given, want := range map[float64][]accuracy.Kind{0: {accuracy.TooMuch}, 1: {accuracy.TooMuch}, 2: nil} {
		r := bucketsOf(tokens(5, 0))
		r.Entries = []accuracy.Entry{at(0, 1, accuracy.Take, 5, accuracy.Admitted), at(10, 11, accuracy.Take, 2, accuracy.Admitted), at(12, 13, accuracy.Take, 1, accuracy.Denied)}
		for i := range r.Entries {
			r.Entries[i].Call = uint64(i)
		}
		r.Faults = []accuracy.Fault{{Why: "forgot", From: 4, To: 6, Units: given}}
		v, err := accuracy.Check(&r, exact)
		require.NoError(t, err)
		require.Equal(t, want, kinds(v), "%v", given)
	}
}

// TestSharesAreJudgedByThemselves: what shares admit does not count as admitted by the store, and no fault of the store gives them anything.
func TestSharesAreJudgedByThemselves(t *testing.T) {
	r := bucketsOf(tokens(20, 40))
	take := func(source accuracy.Source, at int64, units uint64, left float64) {
		r.Entries = append(r.Entries, accuracy.Entry{
			Call: uint64(len(r.Entries)), Start: at, End: at + 1, Op: accuracy.Take, Cost: units, Source: source, Outcome: accuracy.Admitted, Passed: true, Left: left,
		})
	}
	const ms = 1_000_000
	// The store is drained and fails for half a second, in which it fills. All shares start full, and go on for 50 ms after the first instance is back.
	take(accuracy.FromStore, 0, 20, 0)
	take(accuracy.FromLocal, ms, 20, nan)
	take(accuracy.FromLocal, 500*ms, 19, nan)
	take(accuracy.FromStore, 501*ms, 6, 14)
	take(accuracy.FromLocal, 550*ms, 2, nan)
	r.Faults = []accuracy.Fault{{Why: "paused", From: ms, To: 600 * ms}}
	v, err := accuracy.Check(&r, exact)
	require.NoError(t, err)
	require.NoError(t, v.Err())

	take(accuracy.FromLocal, 551*ms, 2, nan)
	r.Faults[0].Capacities = 1
	v, err = accuracy.Check(&r, exact)
	require.NoError(t, err)
	require.Equal(t, []accuracy.Kind{accuracy.TooMuch}, kinds(v))
	require.True(t, v.Findings[0].Shares)
	require.True(t, v.Fullest.Shares)
	require.Equal(t, 43., v.Fullest.Admitted)
	require.ErrorContains(t, v.Err(), "a by shares: too much admitted: admitted 43 in")
}

// bucketsOf is a record of fresh buckets, each decided by itself.
func bucketsOf(limits ...algorithm.Limits) accuracy.Record {
	var r accuracy.Record
	for i, l := range limits {
		key := string(rune('a' + i))
		r.Buckets = append(r.Buckets, accuracy.Bucket{Key: key, Limits: l, Group: key, Fresh: true})
	}
	return r
}

// TestSourcesOfALimiter: what no bucket has decided is not taken for the store's word, else a denial of a full bucket that somebody has blocked would
// be one to complain of.
func TestSourcesOfALimiter(t *testing.T) {
	want := map[ratelimit.Source]accuracy.Source{
		ratelimit.FromStore: accuracy.FromStore, ratelimit.FromCache: accuracy.FromCache, ratelimit.FromLocal: accuracy.FromLocal,
		ratelimit.FromOpen: accuracy.FromOpen, ratelimit.FromClosed: accuracy.FromClosed, ratelimit.FromMissingKey: accuracy.FromNever,
		ratelimit.FromNever: accuracy.FromNever, ratelimit.FromBlocked: accuracy.FromNever,
	}
	for s := ratelimit.FromStore; s.String() != ""; s++ {
		require.Contains(t, want, s, "what is a denial from %s?", s)
		require.Equal(t, want[s], accuracy.SourceOf(s.String()), s.String())
	}
	require.Equal(t, accuracy.FromStore, accuracy.SourceOf(""))
}
