package storetest

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

var modelTests = []test{
	{name: "random calls give what the model gives", clock: true, run: func(f *fixture) {
		n := 0
		rapid.Check(f.TB, func(t *rapid.T) {
			n++
			walk(t, f, n)
		})
	}},
	{name: "concurrent calls on one bucket are linearizable", run: func(f *fixture) {
		linearizable(f, 1, "same")
	}},
	{name: "concurrent calls on two buckets are linearizable", run: func(f *fixture) {
		linearizable(f, 2, "same")
	}},
	{name: "concurrent calls on two buckets with different hash tags are linearizable", run: func(f *fixture) {
		if !f.h.AcrossTags {
			f.Skip("the store promises this for one hash tag only")
		}
		linearizable(f, 2, "tag0", "tag1")
	}},
}

func drawShape(t *rapid.T, label string) shape {
	s := shape{
		kind:     rapid.SampledFrom([]algorithm.Kind{algorithm.TokenBucket, algorithm.SlidingLog}).Draw(t, label+" kind"),
		capacity: rapid.Int64Range(1, 20).Draw(t, label+" capacity"),
	}
	if s.kind == algorithm.SlidingLog {
		s.window = rapid.Int64Range(1, 5000).Draw(t, label+" window")
		return s
	}
	s.rate = rapid.Int64Range(1, 50_000).Draw(t, label+" rate")
	s.overdraft = rapid.Int64Range(0, 10).Draw(t, label+" overdraft")
	return s
}

var operations = []ratelimit.Op{
	ratelimit.Take, ratelimit.Take, ratelimit.Take, ratelimit.Take, ratelimit.Take,
	ratelimit.Peek, ratelimit.Undo, ratelimit.Undo, ratelimit.Refund, ratelimit.Force, ratelimit.Reset, ratelimit.Put,
}

// taken is a Take that may be given back.
type taken struct {
	step   step
	answer answer
	result ratelimit.Result
}

// walk makes a random sequence of calls and compares every answer.
func walk(t *rapid.T, f *fixture, n int) {
	var shapes []shape
	for i := range rapid.IntRange(1, 4).Draw(t, "buckets") {
		shapes = append(shapes, drawShape(t, fmt.Sprint("bucket ", i)))
	}
	w := newWorld(shapes)
	open := make([][]taken, len(shapes))
	now := int64(0)
	for range rapid.IntRange(1, 60).Draw(t, "calls") {
		if rapid.Bool().Draw(t, "time passes") {
			d := rapid.Int64Range(1, 2000).Draw(t, "us")
			f.h.Advance(time.Duration(d) * time.Microsecond)
			now += d
		}
		var steps []step
		var buckets []ratelimit.Bucket
		for _, i := range rapid.Permutation(indices(len(shapes))).Draw(t, "order")[:rapid.IntRange(1, len(shapes)).Draw(t, "of them")] {
			s, given := drawStep(t, i, shapes[i], &open[i])
			steps = append(steps, s)
			buckets = append(buckets, f.bucketFor(s, shapes[i], given, n))
		}
		results := f.h.Store.Acquire(f.Context(), buckets, nil)
		answers := w.call(now, steps)
		for j, a := range answers {
			if !a.matches(steps[j], results[j]) {
				t.Fatalf("%+v on %+v at %d: got %+v, want %+v", steps[j], shapes[steps[j].bucket], now, results[j], a)
			}
		}
		remember(open, steps, answers, results)
	}
}

func indices(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func drawStep(t *rapid.T, i int, s shape, open *[]taken) (step, ratelimit.Result) {
	st := step{
		bucket: i,
		op:     rapid.SampledFrom(operations).Draw(t, "op"),
		cost:   rapid.Uint64Range(1, uint64(s.capacity)).Draw(t, "cost"),
		shadow: rapid.IntRange(0, 5).Draw(t, "shadow") == 0,
	}
	if st.op != ratelimit.Undo {
		return st, ratelimit.Result{}
	}
	if len(*open) == 0 {
		st.op = ratelimit.Peek
		return st, ratelimit.Result{}
	}
	last := (*open)[len(*open)-1]
	*open = (*open)[:len(*open)-1]
	st.cost, st.undoes = last.step.cost, last.answer
	return st, last.result
}

func (f *fixture) bucketFor(s step, sh shape, given ratelimit.Result, n int) ratelimit.Bucket {
	return ratelimit.Bucket{
		Key: f.key(fmt.Sprint(n, "-", s.bucket)), Limits: sh.limits(), Overdraft: float64(sh.overdraft),
		Cost: s.cost, Op: s.op, Shadow: s.shadow, Before: given.Before, At: given.At,
	}
}

// remember keeps the Takes that were charged, so that a later call may give them back.
func remember(open [][]taken, steps []step, answers []answer, results []ratelimit.Result) {
	charged := true
	for i, s := range steps {
		charged = charged && (answers[i].admitted || s.shadow)
	}
	for i, s := range steps {
		if s.op == ratelimit.Reset || s.op == ratelimit.Put {
			open[s.bucket] = nil
		}
		if s.op == ratelimit.Take && charged && answers[i].admitted {
			open[s.bucket] = append(open[s.bucket], taken{s, answers[i], results[i]})
		}
	}
}
