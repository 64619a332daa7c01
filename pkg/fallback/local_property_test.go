package fallback_test

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

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

// model says what four instances do with one bucket of 100 that does not refill, but for pauses in which it gets full. Unknown is below 0.
type model struct {
	store       int
	down        bool
	local, seen [4]int
	owed        [4]int
}

const modelShare = 25

func newModel() *model {
	m := &model{}
	m.pause()
	m.owed = [4]int{}
	return m
}

func (m *model) pause() {
	m.store = 100
	m.local, m.seen = [4]int{-1, -1, -1, -1}, [4]int{-1, -1, -1, -1}
}

func (m *model) up() {
	m.down = false
	for i, owed := range m.owed {
		if m.local[i] >= 0 {
			m.store -= min(owed, modelShare-m.local[i], m.store)
			if owed > 0 {
				m.seen[i] = -2 // depends on who paid first; the local bucket is not full, so that nobody looks
			}
		}
		m.owed[i] = 0
	}
}

// call returns whether a call is admitted and what is left: -1 if that is not told.
func (m *model) call(s step) (admitted bool, left int) {
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
		m.seen[s.instance] = m.store
		return admitted, m.store
	}
	if s.cost > modelShare && s.what != "refund" {
		return false, -1
	}
	have := &m.local[s.instance]
	if *have < 0 || *have == modelShare {
		*have = modelShare
		if seen := m.seen[s.instance]; seen >= 0 {
			*have = seen / 4
		}
	}
	switch {
	case s.what == "refund":
		*have = min(modelShare, *have+s.cost)
		m.owed[s.instance] = max(0, m.owed[s.instance]-s.cost)
	case *have < s.cost:
		return false, *have
	case s.what == "call":
		*have -= s.cost
		m.owed[s.instance] += s.cost
	}
	return true, *have
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
			admitted, left := m.call(s)
			got := ask(all[s.instance], cost(with(b, ops[s.what]), uint64(s.cost)))[0]
			if (got.Outcome == ratelimit.Admitted) != admitted || left >= 0 && math.Abs(got.Remaining-float64(left)) > 0.02 {
				return fmt.Sprintf("step %d, %v: got %+v, want admitted %v, %d left", n, s, got, admitted, left)
			}
		}
	}
	return ""
}
