package accuracy_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// exact is for records whose clock is the store's.
var exact = accuracy.Options{Drift: -1, Step: time.Nanosecond}

// TestNoFalseAlarm: nothing is found in what a store which keeps its limits has done, whenever within the calls it decided.
func TestNoFalseAlarm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := generated(t, rapid.IntRange(1, 3).Draw(t, "buckets"), 40, rapid.Bool().Draw(t, "shares"))
		v, err := accuracy.Check(r, accuracy.Options{})
		require.NoError(t, err)
		require.NoError(t, v.Err())
	})
}

// lied changes answers of a history.
func lied(t *rapid.T) *accuracy.Record {
	r := generated(t, 1, 25, false)
	for range rapid.IntRange(0, 5).Draw(t, "lies") {
		e := &r.Entries[rapid.IntRange(0, len(r.Entries)-1).Draw(t, "at")]
		if e.Op == accuracy.Refund {
			continue
		}
		e.Passed = !e.Passed
		e.Outcome = accuracy.Admitted
		if !e.Passed {
			e.Outcome = accuracy.Denied
		}
	}
	return r
}

// TestEveryOverAdmissionIsFound: the checker finds too much admitted where trying all intervals does, and nowhere else.
func TestEveryOverAdmissionIsFound(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		r := lied(t)
		v, err := accuracy.Check(r, exact)
		require.NoError(t, err)
		l := r.Buckets[0].Limits
		excess := bruteExcess(r, 0, accuracy.Options{Step: time.Nanosecond})
		got := slices.Contains(kinds(v), accuracy.TooMuch)
		if excess > l.Capacity+1e-4 {
			require.True(t, got, "%v of %v", excess, l.Capacity)
			found++
		}
		if excess <= l.Capacity {
			require.False(t, got, "%v of %v: %v", excess, l.Capacity, v.Findings)
		}
	})
	require.Greater(t, found, 5, "the histories are too good")
}

// TestEveryWrongDenialIsFound: the same for denials while enough was there for sure.
func TestEveryWrongDenialIsFound(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		r := lied(t)
		v, err := accuracy.Check(r, exact)
		require.NoError(t, err)
		surely, perhaps := 0, 0
		for i := range r.Entries {
			e := &r.Entries[i]
			if e.Outcome != accuracy.Denied {
				continue
			}
			there := r.Buckets[0].Limits.Capacity - bruteMissing(r, e, accuracy.Options{Step: time.Nanosecond})
			switch {
			case there >= float64(e.Cost)+1e-4:
				surely++
			case there > float64(e.Cost)-1e-9:
				perhaps++
			default:
			}
		}
		require.GreaterOrEqual(t, v.WrongDenials, surely)
		require.LessOrEqual(t, v.WrongDenials, surely+perhaps)
		found += surely
	})
	require.Greater(t, found, 5, "the histories are too good")
}

// TestLostRefill: a store whose refill is a part too slow, or too fast, is found out sooner or later.
func TestLostRefill(t *testing.T) {
	for _, test := range []struct {
		name  string
		speed float64
		want  []accuracy.Kind
	}{
		{"as it should", 1, nil},
		{"a clock that is fast", 1.0004, nil},
		{"a clock that is slow", 0.9996, nil},
		{"too fast", 1.01, []accuracy.Kind{accuracy.TooMuch}},
		{"too slow", 0.99, []accuracy.Kind{accuracy.WronglyDenied}},
	} {
		t.Run(test.name, func(t *testing.T) {
			told := tokens(10, 100)
			real := told
			real.Rate *= test.speed
			r := &accuracy.Record{Buckets: []accuracy.Bucket{{Key: "k", Limits: told, Fresh: true}}}
			s := algorithm.NewTokens(real, 0)
			for n := range int64(40_000) {
				now := n * 3e6 // 333 a second
				e := accuracy.Entry{Start: now - 1e5, End: now + 1e5, Call: uint64(n), Cost: 1, Op: accuracy.Take, Source: accuracy.FromStore, Outcome: accuracy.Denied, Left: nan}
				if s, e.Passed = s.Take(real, 1, now/1000); e.Passed {
					e.Outcome = accuracy.Admitted
				}
				r.Entries = append(r.Entries, e)
			}
			v, err := accuracy.Check(r, accuracy.Options{})
			require.NoError(t, err)
			require.Equal(t, test.want, kinds(v), "%v", v.Err())
		})
	}
}

// TestMillions: a record of a million calls by 64 callers of one bucket takes seconds.
func TestMillions(t *testing.T) {
	n := 100_000
	if long() {
		n = 3_000_000
	}
	r := &accuracy.Record{Buckets: []accuracy.Bucket{{Key: "k", Limits: tokens(1000, 20_000), Fresh: true}}}
	s := algorithm.NewTokens(r.Buckets[0].Limits, 0)
	for i := range int64(n) {
		at := 1e9 + i*25_000 // 40,000 a second
		next, ok := s.Take(r.Buckets[0].Limits, 1, at/1000)
		s = next
		e := accuracy.Entry{Start: at - i%97*1e4, End: at + i%89*1e4, Call: uint64(i), Cost: 1, Op: accuracy.Take, Source: accuracy.FromStore, Outcome: accuracy.Denied, Left: nan, Passed: ok}
		if ok {
			e.Outcome = accuracy.Admitted
		}
		r.Entries = append(r.Entries, e)
	}
	began := time.Now()
	v, err := accuracy.Check(r, accuracy.Options{})
	require.NoError(t, err)
	require.NoError(t, v.Err())
	t.Logf("%d calls, %d admitted, %d denials judged in %v", v.Calls, v.Admitted, v.Denials, time.Since(began))
	require.Greater(t, v.Denials, n/3)
	require.InDelta(t, 1, v.Fullest.Admitted/v.Fullest.Bound, 0.05)
	r.Entries[n/2].Cost = 1000
	v, err = accuracy.Check(r, accuracy.Options{})
	require.NoError(t, err)
	require.Error(t, v.Err())
}
