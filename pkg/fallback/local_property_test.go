package fallback_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// step is one thing that happens to a fleet.
type step struct {
	what     string // call, refund, look, down, up, pause
	instance int
	cost     int
}

func (s step) String() string { return fmt.Sprintf("%s %d by %d", s.what, s.cost, s.instance) }

// model says what four instances do with one bucket of 100 that does not refill, but for pauses in which it gets full.
type model struct {
	store int
	down  bool
	local [4]int // below 0: never asked
	seen  [4]span
	owed  [4]int
}

// span is what an instance was told that the store has left: it depends on who paid a debt first.
type span struct{ low, high int }

const modelShare = 25

func newModel() *model {
	m := &model{}
	m.pause()
	return m
}

func (m *model) pause() {
	m.store = 100
	for i := range m.local {
		m.local[i], m.seen[i] = -1, span{100, 100}
	}
}

func (m *model) up() {
	m.down = false
	before, paid := m.store, [4]int{}
	for i := range m.owed {
		paid[i] = min(m.owed[i], modelShare-m.local[i])
		m.store -= min(paid[i], m.store)
		m.owed[i] = 0
	}
	for i := range paid {
		if paid[i] > 0 {
			m.seen[i] = span{m.store, before}
		}
	}
}

// call returns whether a call is admitted and what is left: -1 if that is not told. told is what the instance says is left: where the model
// knows no more than a span of what it starts with, that tells which it is.
func (m *model) call(s step, told float64) (admitted bool, left int) {
	if !m.down {
		switch {
		case s.what == "refund":
			m.store = min(100, m.store+s.cost)
			admitted = true
		case m.store >= s.cost:
			admitted = true
			if s.what == "call" {
				m.store -= s.cost
			}
		}
		m.seen[s.instance] = span{m.store, m.store}
		return admitted, m.store
	}
	have := &m.local[s.instance]
	if *have < 0 || *have == modelShare {
		*have = m.start(s, int(math.Round(told)))
	}
	switch {
	case s.what == "refund":
		*have = min(modelShare, *have+s.cost)
		m.owed[s.instance] = max(0, m.owed[s.instance]-s.cost)
	case s.cost > modelShare:
		return false, -1 // but the local bucket has started
	case *have < s.cost:
		return false, *have
	case s.what == "call":
		*have -= s.cost
		m.owed[s.instance] += s.cost
	}
	return true, *have
}

// start is what a local bucket starts with: that part of what was seen last which leads to what is told after the step, if any does.
func (m *model) start(s step, told int) int {
	seen := m.seen[s.instance]
	for have := seen.low / 4; have < seen.high/4; have++ {
		after := have
		switch {
		case s.what == "refund":
			after = min(modelShare, have+s.cost)
		case s.what == "call" && have >= s.cost && s.cost <= modelShare:
			after = have - s.cost
		}
		if after == told {
			return have
		}
	}
	return seen.high / 4
}

// TestLocalModel: whatever happens in whatever order, four instances do what the model does.
func TestLocalModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{
				what: rapid.SampledFrom([]string{
					"call", "call", "call", "call", "call", "call", "refund", "look", "down", "up", "pause",
				}).Draw(t, "what"),
				instance: rapid.IntRange(0, 3).Draw(t, "instance"),
				cost:     rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, 40)).Draw(t, "cost"),
			}
		}), 1, 60).Draw(rt, "steps")
		var fault string
		synctest.Test(t, func(t *testing.T) { fault = followModel(t, steps) })
		if fault != "" {
			rt.Fatal(fault)
		}
	})
}

// followModel has instances and the model do the same, and returns the first difference.
func followModel(t *testing.T, steps []step) string {
	h, m := newHub(), newModel()
	all, b := h.instances(t, 4), local("a", daily)
	ops := map[string]ratelimit.Op{"call": ratelimit.Take, "refund": ratelimit.Refund, "look": ratelimit.Peek}
	for n, s := range steps {
		switch s.what {
		case "down":
			m.down = true
			h.set(true, false)
		case "up":
			h.set(false, false)
			time.Sleep(3 * time.Second) // enough to pay what is owed
			m.up()
		case "pause":
			if !m.down { // who owes something looks every quarter of a second whether the store is back
				time.Sleep(110 * 24 * time.Hour)
				m.pause()
			}
		default:
			got := ask(all[s.instance], cost(with(b, ops[s.what]), uint64(s.cost)))[0]
			admitted, left := m.call(s, got.Remaining)
			if (got.Outcome == ratelimit.Admitted) != admitted || left >= 0 && math.Abs(got.Remaining-float64(left)) > 0.02 {
				return fmt.Sprintf("step %d, %v: got %+v, want admitted %v, %d left", n, s, got, admitted, left)
			}
		}
	}
	return ""
}

// TestLocalModelRare: what chance shows once in some thousand runs.
func TestLocalModelRare(t *testing.T) {
	for name, steps := range map[string][]step{
		"denied for more than a share, which starts the local bucket": {
			{"call", 1, 1}, {"down", 0, 1}, {"call", 1, 26}, {"up", 0, 1}, {"call", 1, 4}, {"down", 0, 1}, {"call", 1, 1},
		},
		"given back until it is full, after it was paid": {
			{"down", 0, 1}, {"call", 0, 16}, {"call", 3, 3}, {"up", 0, 1}, {"call", 3, 19}, {"down", 0, 1}, {"refund", 0, 16}, {"call", 0, 12},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { require.Empty(t, followModel(t, steps)) })
		})
	}
}
