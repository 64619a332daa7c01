package faults_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
)

const (
	storeTimeout = 5 * time.Millisecond
	victim       = 1
)

var trouble = faults.Span{From: time.Second, To: 2 * time.Second}

// planted is what a service leaves that does everything right: 3 s of 1,000 calls a second over two shards, one of which is in trouble for the
// second of them.
func planted() *faults.Record {
	r := &faults.Record{Marks: []faults.Mark{{At: trouble.From, What: "stop"}, {At: trouble.To, What: "go on"}}}
	for n := range 3000 {
		d := faults.Decision{Due: time.Duration(n) * time.Millisecond, Took: time.Millisecond, Allowed: true, Source: "store"}
		d.Shard, d.Mode = n%2, "open"
		if d.Shard == victim && trouble.Within(d.Due) {
			d.Took, d.Source = storeTimeout, "open"
		}
		r.Decisions = append(r.Decisions, d)
	}
	return r
}

// all runs every check.
func all(r *faults.Record) error {
	return errors.Join(r.CheckAnswered(), r.CheckModes(), r.CheckInTime(storeTimeout), r.CheckTrace(trouble, victim),
		r.CheckAgain(trouble.To, victim, 500*time.Millisecond), r.CheckAlone(trouble.To, victim, 500*time.Millisecond), r.CheckUntouched(trouble, 0))
}

// change changes every nth of the decisions that were due within a span on a shard.
func change(r *faults.Record, s faults.Span, shard, nth int, f func(*faults.Decision)) {
	for n, d := range r.Select(s, shard) {
		if n%nth == 0 {
			f(d)
		}
	}
}

func TestChecksFindWhatIsWrong(t *testing.T) {
	t.Parallel()
	after := faults.Span{From: trouble.To + 500*time.Millisecond, To: time.Hour}
	took := func(d time.Duration) func(*faults.Decision) { return func(x *faults.Decision) { x.Took = d } }
	by := func(source string) func(*faults.Decision) {
		return func(x *faults.Decision) { x.Source, x.Mode, x.Allowed = source, source, source != "closed" }
	}
	tests := []struct {
		name  string
		plant func(*faults.Record)
		want  string // empty: nothing is wrong
	}{
		{"nothing", func(*faults.Record) {}, ""},
		{"no decisions", func(r *faults.Record) { r.Decisions = nil }, "nothing was asked"},
		{"one error", func(r *faults.Record) { r.Decisions[1500].Err = errors.New("unavailable") }, "1 of 3000 calls failed; the first, due at 1.5s on shard 0, after 1ms: unavailable"},
		{"one hang", func(r *faults.Record) { r.Decisions[1500].Err = context.DeadlineExceeded }, "deadline exceeded"},
		{"an answer without a source", func(r *faults.Record) { r.Decisions[1500].Source = "" }, "do not say who decided"},
		{"one in 2,000 is late", func(r *faults.Record) { r.Decisions[1500].Took = 100 * time.Millisecond }, ""},
		{"one in 500 is late", func(r *faults.Record) { change(r, always, 0, 250, took(60*time.Millisecond)) }, "p99.9 is 60ms, want at most 55ms"},
		{"one is very late", func(r *faults.Record) { r.Decisions[1500].Took = 501 * time.Millisecond }, "took 501ms"},
		{"the machine stood still", func(r *faults.Record) {
			r.Stalls = []faults.Span{{From: time.Second, To: 1600 * time.Millisecond}}
			change(r, faults.Span{From: 1050 * time.Millisecond, To: 1550 * time.Millisecond}, 0, 1, func(d *faults.Decision) {
				d.Took = 1601*time.Millisecond - d.Due
			})
		}, ""},
		{"the machine stood still at another time", func(r *faults.Record) {
			r.Stalls = []faults.Span{{From: 0, To: 900 * time.Millisecond}, {From: 2200 * time.Millisecond, To: 2900 * time.Millisecond}}
			r.Decisions[1500].Took = 600 * time.Millisecond
		}, "took 600ms"},
		{"calls were made late", func(r *faults.Record) {
			change(r, always, 0, 1, func(d *faults.Decision) { d.Late, d.Took = time.Second, time.Second+time.Millisecond })
		}, ""},
		{"another policy's mode", func(r *faults.Record) { r.Decisions[1501].Mode = "local" }, "about a policy local was decided by the mode open"},
		{"an open policy denies", func(r *faults.Record) { r.Decisions[1501].Allowed = false }, "mode open: allowed false"},
		{"a closed policy admits", func(r *faults.Record) { r.Decisions[1501].Source, r.Decisions[1501].Mode = "closed", "closed" }, "mode closed: allowed true"},
		{"a local policy may deny", func(r *faults.Record) {
			d := &r.Decisions[1501]
			d.Source, d.Mode, d.Allowed = "local", "local", false
		}, ""},
		{"no trace", func(r *faults.Record) { change(r, trouble, victim, 1, by("store")) }, "the fault left no trace"},
		{"a trace on another shard only", func(r *faults.Record) {
			change(r, trouble, victim, 1, by("store"))
			change(r, trouble, 0, 500, by("local"))
		}, "the fault left no trace"},
		{"the store never decides again", func(r *faults.Record) { change(r, after, victim, 1, by("local")) }, "the store decided nothing on shard 1"},
		{"nothing is asked afterwards", func(r *faults.Record) { r.Decisions = r.Decisions[:2000] }, "nothing was asked about shard 1"},
		{"the store decides half again", func(r *faults.Record) { change(r, after, victim, 2, by("closed")) }, "the store did not make 125 of 250 decisions"},
		{"a few decisions are late afterwards", func(r *faults.Record) { change(r, after, victim, 50, by("closed")) }, ""},
		{"more than a few are", func(r *faults.Record) { change(r, after, victim, 40, by("closed")) }, "the store did not make 7 of 250 decisions"},
		{"a stalled machine excuses no store that never decides again", func(r *faults.Record) {
			r.Stalls = []faults.Span{{From: 0, To: time.Hour}}
			change(r, after, victim, 1, by("local"))
		}, "the store decided nothing on shard 1"},
		{"a healthy shard is touched", func(r *faults.Record) { change(r, trouble, 0, 20, by("open")) }, "failure modes made 25 of 500 decisions on healthy"},
		{"a healthy shard is slow", func(r *faults.Record) { change(r, trouble, 0, 20, took(10*time.Millisecond)) }, "p99 on healthy shards is 10ms, was 1ms"},
		{"a healthy shard is slow for a hiccup", func(r *faults.Record) {
			change(r, faults.Span{From: trouble.From, To: trouble.From + 16*time.Millisecond}, 0, 1, took(10*time.Millisecond))
		}, ""},
		{"a healthy shard is slow for longer", func(r *faults.Record) {
			change(r, faults.Span{From: trouble.From, To: trouble.From + 24*time.Millisecond}, 0, 1, took(10*time.Millisecond))
		}, "p99 on healthy shards is 10ms, was 1ms"},
		{"a healthy shard is touched as the machine stands still", func(r *faults.Record) {
			r.Stalls = []faults.Span{{From: 1300 * time.Millisecond, To: 1310 * time.Millisecond}}
			change(r, faults.Span{From: 1350 * time.Millisecond, To: 1400 * time.Millisecond}, 0, 1, by("open"))
		}, ""},
		{"a healthy shard is touched long after", func(r *faults.Record) {
			r.Stalls = []faults.Span{{From: 1300 * time.Millisecond, To: 1310 * time.Millisecond}}
			change(r, faults.Span{From: 1450 * time.Millisecond, To: 1500 * time.Millisecond}, 0, 1, by("open"))
		}, "failure modes made 25 of 500 decisions on healthy"},
		{"a stalled machine excuses no error", func(r *faults.Record) {
			r.Stalls = []faults.Span{{From: 0, To: time.Hour}}
			r.Decisions[1500].Err = errors.New("unavailable")
		}, "1 of 3000 calls failed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := planted()
			test.plant(r)
			err := all(r)
			if test.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.want)
		})
	}
}

func TestStalled(t *testing.T) {
	t.Parallel()
	r := planted()
	require.Zero(t, r.Stalled())
	r.Stalls = []faults.Span{{From: 0, To: 300 * time.Millisecond}, {From: 2700 * time.Millisecond, To: time.Hour}}
	require.InDelta(t, 0.2, r.Stalled(), 0.001)
	require.Zero(t, (&faults.Record{}).Stalled())
}

func TestBetween(t *testing.T) {
	t.Parallel()
	r := planted()
	r.Stalls = []faults.Span{{From: 0, To: 1900 * time.Millisecond}, {From: 2100 * time.Millisecond, To: 2200 * time.Millisecond}}
	part := r.Between(faults.Span{From: 1800 * time.Millisecond, To: 2100 * time.Millisecond})
	require.Len(t, part.Decisions, 300)
	require.Zero(t, part.Decisions[0].Due)
	require.Equal(t, []faults.Mark{{At: 200 * time.Millisecond, What: "go on"}}, part.Marks)
	require.Equal(t, []faults.Span{{From: 0, To: 100 * time.Millisecond}}, part.Stalls)
	require.NoError(t, part.CheckTrace(faults.Span{To: 200 * time.Millisecond}, victim))
	require.NoError(t, part.CheckAgain(200*time.Millisecond, victim, 0))
	require.Equal(t, 1800*time.Millisecond, r.Decisions[1800].Due, "the whole is as it was")
}

func TestAgain(t *testing.T) {
	t.Parallel()
	r := planted()
	require.Equal(t, time.Millisecond, r.Again(trouble.To, victim))
	change(r, faults.Span{From: trouble.To, To: 2300 * time.Millisecond}, victim, 10, func(d *faults.Decision) { d.Source = "local" })
	require.Equal(t, 283*time.Millisecond, r.Again(trouble.To, victim), "after the last one that was not the store's")
	change(r, faults.Span{From: trouble.To, To: time.Hour}, victim, 10, func(d *faults.Decision) { d.Source = "local" })
	require.Negative(t, r.Again(trouble.To, victim))
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	r := planted()
	r.Decisions = append(r.Decisions[:100:100], r.Decisions[1000:1100]...)
	r.Stalls = []faults.Span{{From: 1050 * time.Millisecond, To: 1057500 * time.Microsecond}}
	r.Decisions[199].Err = errors.New("unavailable")
	require.Equal(t, `s store, c cache, l local, o open, x closed, e error, - none; times in ms, stalled: the machine itself
   from shard 0        shard 1           p50     p99     max errors stalled
      0 50s            50s               1.0     1.0     1.0      0     0.0
    100                                  0.0     0.0     0.0      0     0.0
    200                                  0.0     0.0     0.0      0     0.0
    300                                  0.0     0.0     0.0      0     0.0
    400                                  0.0     0.0     0.0      0     0.0
    500                                  0.0     0.0     0.0      0     0.0
    600                                  0.0     0.0     0.0      0     0.0
    700                                  0.0     0.0     0.0      0     0.0
    800                                  0.0     0.0     0.0      0     0.0
    900                                  0.0     0.0     0.0      0     0.0
   1000 50s            1e 49o            5.0     5.0     5.0      1     7.5  stop (1000.0)
`, r.Timeline())
}
