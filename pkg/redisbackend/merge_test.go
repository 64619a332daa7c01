package redisbackend

import (
	"errors"
	"hash/maphash"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// waiting is a call that a worker has claimed, with these keys.
func waiting(keys ...string) *call {
	c := &call{args: []any{evalSHA, "sha", len(keys)}, group: &group{arrived: make(chan *call, 1)}, mergeable: true}
	for _, k := range keys {
		c.args = append(c.args, []byte(k))
	}
	c.own()
	c.reset()
	c.state.Store(sent)
	return c
}

// chain lists the calls that one is sent for, itself first.
func (c *call) chain() (all []*call) {
	for ; c != nil; c = c.next {
		all = append(all, c)
	}
	return all
}

func TestWhatIsMerged(t *testing.T) {
	same := func(do func(*call)) *call {
		c := waiting("a", "b")
		do(c)
		return c
	}
	for _, s := range []struct {
		name          string
		first, second *call
		merged        bool
	}{
		{"the same", waiting("a", "b"), waiting("a", "b"), true},
		{"another key", waiting("a", "b"), waiting("a", "c"), false},
		{"another order", waiting("a", "b"), waiting("b", "a"), false},
		{"keys cut elsewhere", waiting("ab", "c"), waiting("a", "bc"), false},
		{"more", waiting("a", "b"), waiting("a", "b", ""), false},
		{"one goes after ASKING", waiting("a", "b"), same(func(c *call) { c.asking = true }), false},
		{"both go after ASKING", same(func(c *call) { c.asking = true }), same(func(c *call) { c.asking = true }), true},
		{"neither may be", same(func(c *call) { c.mergeable = false }), same(func(c *call) { c.mergeable = false }), false},
		{"one may not be", waiting("a", "b"), same(func(c *call) { c.mergeable = false }), false},
		{"one loads the script", waiting("a", "b"), same(func(c *call) { c.load = true }), true},
	} {
		t.Run(s.name, func(t *testing.T) {
			load := s.first.load || s.second.load
			got := (&sameCalls{seed: maphash.MakeSeed()}).merge([]*call{s.first, s.second})
			if !s.merged {
				require.Equal(t, []*call{s.first, s.second}, got)
				require.Len(t, s.first.Args(), len(s.first.args))
				return
			}
			require.Len(t, got, 1)
			require.Equal(t, []*call{s.first, s.second}, s.first.chain())
			require.Equal(t, 2, s.first.Args()[len(s.first.args)])
			require.Equal(t, load, s.first.load)
		})
	}
}

// TestMergeKeepsTheOrder compares with what a map of lists would do.
func TestMergeKeepsTheOrder(t *testing.T) {
	s := &sameCalls{seed: maphash.MakeSeed()} // used again and again, as a worker does
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, 40), 0, mostInBatch).Draw(t, "kinds")
		var calls []*call
		var order []int
		want := map[int][]*call{}
		for _, k := range kinds {
			c := waiting("key", strconv.Itoa(k))
			calls = append(calls, c)
			if want[k] == nil {
				order = append(order, k)
			}
			want[k] = append(want[k], c)
		}
		got := s.merge(calls)
		require.Len(t, got, len(order))
		for i, k := range order {
			require.True(t, got[i] == want[k][0])
			chain := got[i].chain()
			require.Len(t, chain, len(want[k]))
			require.Equal(t, len(chain), got[i].place.of)
			for j := range chain {
				require.True(t, chain[j] == want[k][j])
			}
		}
	})
}

// idle is a worker of a node that sends nothing.
func idle(connected int32) *worker {
	c := &client{}
	c.calls.New = func() any { return new(call) }
	n := &node{address: "node", client: c, queue: make(chan *call, 8)}
	n.up.Store(connected)
	return &worker{node: n, same: sameCalls{seed: maphash.MakeSeed()}}
}

func (w *worker) three() (all []*call, first *call) {
	all = []*call{waiting("a"), waiting("a"), waiting("a")}
	return all, w.same.merge(append([]*call(nil), all...))[0]
}

func TestEachOfAMergedCallIsTold(t *testing.T) {
	w := idle(1)
	all, first := w.three()
	groups := []*group{all[0].group, all[1].group, all[2].group}
	require.True(t, all[1].state.CompareAndSwap(sent, abandoned))
	first.SetVal("reply")
	first.answered = true
	w.tell(first, errors.New("TRYAGAIN"), true)
	require.Empty(t, groups[1].arrived, "its caller has left")
	for _, turn := range []int{1, 3} {
		c := <-groups[turn-1].arrived
		require.True(t, c == all[turn-1])
		require.Equal(t, place{turn, 3}, c.place)
		require.Equal(t, "reply", c.Val())
		require.True(t, c.answered, "or nobody follows what the reply says")
		require.EqualError(t, c.outcome, "TRYAGAIN")
	}
}

func TestAMergedCallThatCannotBeSentIsTakenApart(t *testing.T) {
	w := idle(1)
	all, first := w.three()
	require.True(t, all[1].state.CompareAndSwap(sent, abandoned))
	w.tell(first, errors.New("no connection"), false)
	require.Len(t, w.node.queue, 2, "for another worker")
	for _, want := range []*call{all[0], all[2]} {
		c := <-w.node.queue
		require.True(t, c == want)
		require.Equal(t, int32(queued), c.state.Load())
		require.Equal(t, []*call{c}, c.chain())
		require.Len(t, c.Args(), len(c.args), "nobody else is charged for")
	}

	w = idle(0) // nobody else has a connection
	all, first = w.three()
	w.tell(first, errors.New("no connection"), false)
	for _, c := range all {
		require.True(t, c == <-c.group.arrived)
		require.EqualError(t, c.outcome, "no connection")
	}
}
