package storetest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Long reports whether tests run in their long form.
func Long() bool { return os.Getenv("ENVOY_RLS_LONG") == "1" }

// rounds is short, or long when tests run in their long form.
func rounds(short, long int) int {
	if Long() {
		return long
	}
	return short
}

// linearizable records histories of concurrent calls and looks for an order of them that the model agrees with. The buckets
// have the hash tags in turn.
func linearizable(f *fixture, buckets int, tags ...string) {
	if f.h.Advance == nil && !f.h.ReportsAt {
		f.Skip("the store's clock neither stands still nor is told")
	}
	kinds := []shape{
		{kind: algorithm.TokenBucket, capacity: 5, rate: whole / 64, overdraft: 3},
		{kind: algorithm.SlidingLog, capacity: 4, window: 97},
		{kind: algorithm.TokenBucket, capacity: 3, rate: whole / 256},
	}
	for round := range rounds(60, 2000) {
		var shapes []shape
		for i := range buckets {
			shapes = append(shapes, kinds[(round+i)%len(kinds)])
		}
		h := &history{f: f, shapes: shapes, tags: tags, round: round}
		verdict, _ := porcupine.CheckOperationsVerbose(h.model(), h.record(5, 7), 30*time.Second)
		require.Equal(f, porcupine.Ok, verdict, "round %d over %+v:\n%s", round, shapes, h)
	}
}

// history is a recording of concurrent calls.
type history struct {
	f      *fixture
	shapes []shape
	tags   []string
	round  int

	clock atomic.Int64 // orders calls and returns
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// moving reports whether the store's clock runs while a history is recorded, which takes a store that says when it decided.
func (h *history) moving() bool { return h.f.h.ReportsAt }

func (h *history) record(clients, calls int) []porcupine.Operation {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for client := range clients {
		wg.Go(func() {
			c := &caller{h: h, id: client, random: rand.New(rand.NewPCG(uint64(h.round), uint64(client))), open: make([][]taken, len(h.shapes))}
			<-start
			for range calls {
				c.call()
				runtime.Gosched() // so that calls of others come in between even on one processor
			}
		})
	}
	close(start)
	wg.Wait()
	return h.ops
}

// caller makes calls one after the other.
type caller struct {
	h      *history
	id     int
	random *rand.Rand
	open   [][]taken
}

func (c *caller) call() {
	h := c.h
	if h.moving() && h.f.h.Advance != nil && c.random.IntN(3) == 0 {
		h.f.h.Advance(time.Duration(c.random.IntN(60)) * time.Microsecond)
	}
	var steps []step
	var buckets []ratelimit.Bucket
	order := c.random.Perm(len(h.shapes))
	for _, i := range order[:1+c.random.IntN(len(order))] {
		s, given := c.step(i)
		b := h.f.bucketFor(s, h.shapes[i], given, h.round)
		b.Key = h.f.keyIn(h.tags[i%len(h.tags)], fmt.Sprint(h.round, "-", i))
		steps, buckets = append(steps, s), append(buckets, b)
	}
	began := h.clock.Add(1)
	results := h.f.h.Store.Acquire(h.f.Context(), buckets, nil)
	op := porcupine.Operation{ClientId: c.id, Input: steps, Call: began, Output: results, Return: h.clock.Add(1)}
	h.mu.Lock()
	h.ops = append(h.ops, op)
	h.mu.Unlock()
	c.remember(steps, results)
}

func (c *caller) step(i int) (step, ratelimit.Result) {
	s := step{bucket: i, op: operations[c.random.IntN(len(operations))], cost: 1 + c.random.Uint64N(2)}
	if s.op != ratelimit.Undo {
		return s, ratelimit.Result{}
	}
	n := len(c.open[i])
	if n == 0 {
		s.op = ratelimit.Take
		return s, ratelimit.Result{}
	}
	last := c.open[i][n-1]
	c.open[i] = c.open[i][:n-1]
	s.cost, s.undoes = last.step.cost, last.answer
	return s, last.result
}

func (c *caller) remember(steps []step, results []ratelimit.Result) {
	answers := make([]answer, len(results))
	for i, r := range results {
		answers[i] = answer{admitted: r.Outcome == ratelimit.Admitted, before: int64(r.Before * whole)}
		if c.h.moving() {
			answers[i].at = r.At
		}
	}
	remember(c.open, steps, answers, results)
}

// model says which answers a call may give in which state of the world.
func (h *history) model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return newWorld(h.shapes) },
		Step: func(before, input, output any) (bool, any) {
			w, steps, results := before.(*world).clone(), input.([]step), output.([]ratelimit.Result)
			now := w.now
			if at, ok := decidedAt(steps, results); ok && h.moving() {
				now = at
			}
			if now < w.now {
				return false, nil
			}
			for i, a := range w.call(now, steps) {
				if !a.matches(steps[i], results[i]) {
					return false, nil
				}
			}
			return true, w
		},
		Equal: func(a, b any) bool { return reflect.DeepEqual(a, b) },
	}
}

// decidedAt is when the store says that it decided a call. What resets buckets only is of no time.
func decidedAt(steps []step, results []ratelimit.Result) (int64, bool) {
	for i, s := range steps {
		if s.op != ratelimit.Reset {
			return results[i].At, true
		}
	}
	return 0, false
}

// String lists the calls for a failure's message.
func (h *history) String() string {
	text := ""
	for _, op := range h.ops {
		text += fmt.Sprintf("client %d [%d, %d] %+v -> %+v\n", op.ClientId, op.Call, op.Return, op.Input, op.Output)
	}
	return text
}
