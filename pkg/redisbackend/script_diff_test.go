package redisbackend

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// walk is a long random sequence of calls on a few buckets whose policies change and whose clock steps.
type walk struct {
	*rand.Rand
	now    int64
	model  model
	limits []algorithm.Limits // in force, one for each key
	takes  []ratelimit.Bucket // undo operations for takes that were charged
	wait   int64              // a time that was promised, in microseconds from now
	logs   bool               // long logs rather than changes of policy
}

func newWalk(seed uint64, logs bool) *walk {
	w := &walk{Rand: rand.New(rand.NewPCG(seed, 1)), now: 1_800_000_000_000_000, model: model{}, logs: logs}
	w.limits = make([]algorithm.Limits, 5)
	for i := range w.limits {
		w.limits[i] = w.anyLimits()
	}
	return w
}

func pick[T any](w *walk, from ...T) T { return from[w.IntN(len(from))] }

func (w *walk) anyLimits() algorithm.Limits {
	if w.IntN(10) > 0 && (w.logs || w.IntN(2) == 0) {
		limit := pick(w, 1.0, 3, 10, 70, 300)
		if w.logs {
			limit = pick(w, 40.0, 150, 400, 400)
		}
		return slidingLog(limit, pick[int64](w, 1e3, 1e6, 3e6, 60e6))
	}
	if w.IntN(8) == 0 {
		return tokenBucket(pick(w, 1<<40-1, 1<<40, 1e15-1), pick(w, 1e9, 7e9))
	}
	return tokenBucket(pick(w, 1.0, 3, 10, 100, 65535), pick(w, 7.0, 100, 255./1440, 1e5, 6e8))
}

// pass moves the clock: mostly on, sometimes back.
func (w *walk) pass() {
	most := int64(1e8)
	if w.logs {
		most = 2e4 // or they would all become empty
	}
	switch scale := pick[int64](w, 1, 1000, 1e5, 1e6, 1e7, 6e7); {
	case w.wait > 0 && w.wait < most && w.IntN(6) == 0:
		w.now += w.wait - w.Int64N(2)
	case w.logs && w.IntN(1000) > 0:
		w.now += w.Int64N(5e3)
	case w.IntN(30) == 0:
		w.now -= w.Int64N(2 * scale)
	case w.IntN(4) > 0:
		w.now += w.Int64N(scale)
	default:
	}
}

// next is a call on one to three distinct buckets.
func (w *walk) next() []ratelimit.Bucket {
	w.pass()
	keys := w.Perm(len(w.limits))[:pick(w, 1, 1, 1, 2, 3)]
	buckets := make([]ratelimit.Bucket, 0, len(keys))
	for _, k := range keys {
		if w.IntN(20) == 0 && (!w.logs || w.IntN(50) == 0) {
			w.limits[k] = w.anyLimits()
		}
		buckets = append(buckets, w.bucket(k))
	}
	return buckets
}

func (w *walk) bucket(k int) ratelimit.Bucket {
	l := w.limits[k]
	b := take(fmt.Sprint("p", k), l)
	switch {
	case w.logs && w.IntN(200) > 0:
		b.Cost = min(1+w.Uint64N(2), uint64(l.Capacity))
	case w.IntN(5) == 0:
		b.Cost = 1 + w.Uint64N(uint64(l.Capacity))
	default:
	}
	b.Shadow = w.IntN(6) == 0
	switch n := w.IntN(40); {
	case n < 5:
		b.Op = ratelimit.Peek
	case n < 7:
		b.Op, b.Overdraft = ratelimit.Force, pick(w, 0.0, 2, l.Capacity)
	case n < 9:
		b.Op = ratelimit.Refund
	case n < 12:
		for i, u := range w.takes {
			if u.Key.String() == b.Key.String() {
				w.takes = append(w.takes[:i:i], w.takes[i+1:]...)
				return u
			}
		}
	case n == 12 && w.IntN(5) == 0 && (!w.logs || w.IntN(20) == 0):
		b.Op = pick(w, ratelimit.Reset, ratelimit.Put)
	}
	return b
}

// remember keeps some of what was taken for an undo, and what was promised.
func (w *walk) remember(buckets []ratelimit.Bucket, results []ratelimit.Result) {
	for i, b := range buckets {
		w.wait = results[i].Wait.Microseconds()
		if w.wait == 0 {
			w.wait = results[i].Reset.Microseconds()
		}
		if b.Op == ratelimit.Take && w.model[b.Key.String()].wrote && results[i].Outcome == ratelimit.Admitted && w.IntN(3) == 0 {
			b.Op, b.Before, b.At = ratelimit.Undo, results[i].Before, results[i].At
			w.takes = append(w.takes, b)
			w.takes = w.takes[max(0, len(w.takes)-20):]
		}
	}
}

// asked is a call under way, with what should come of it.
type asked struct {
	time    int64
	buckets []ratelimit.Bucket
	want    [][]ratelimit.Result // of each of the calls that were made as one
	models  []modelBucket
	reply   *redis.Cmd
	states  []*redis.StringCmd
	lives   []*redis.Cmd
}

// differ walks and returns the first difference between what the script does and the model. Every call's times are known
// before it is made, so many go at once.
func differ(c *redis.Client, s luaScript, seed uint64, logs bool, calls int) error {
	ctx := context.Background()
	if err := c.FlushDB(ctx).Err(); err != nil {
		return err
	}
	w, before := newWalk(seed, logs), map[string]string{}
	for done := 0; done < calls; {
		var batch []asked
		p := c.Pipeline()
		for range 200 {
			batch = append(batch, w.ask(ctx, p, s))
		}
		_, _ = p.Exec(ctx) // each command has its own error
		for _, a := range batch {
			if err := a.compare(before); err != nil {
				return fmt.Errorf("call %d at %d: %w", done, a.time, err)
			}
			done++
		}
	}
	return nil
}

func (w *walk) ask(ctx context.Context, p redis.Pipeliner, s luaScript) asked {
	a, open := asked{buckets: w.next(), time: w.now}, w.IntN(4) == 0
	args := append(appendArgs([]any{"EVALSHA", s.sha}, a.buckets, indices(a.buckets), open), a.time)
	calls := w.calls(a.buckets)
	if calls > 1 {
		args = append(args, calls)
	}
	wrote := make([]bool, len(a.buckets))
	for range calls {
		a.want = append(a.want, w.model.call(a.buckets, open, w.now))
		w.remember(a.buckets, a.want[len(a.want)-1])
		for i, b := range a.buckets {
			wrote[i] = wrote[i] || w.model[b.Key.String()].wrote
		}
	}
	for i, b := range a.buckets {
		if wrote[i] { // and so must set the TTL
			p.Do(ctx, "PEXPIRE", b.Key.String(), extraLife/2)
		}
	}
	a.reply = p.Do(ctx, args...)
	for i, b := range a.buckets {
		a.models = append(a.models, *w.model[b.Key.String()])
		a.models[i].wrote = wrote[i]
		a.states = append(a.states, p.Get(ctx, b.Key.String()))
		a.lives = append(a.lives, p.Do(ctx, "PTTL", b.Key.String()))
	}
	return a
}

func (a *asked) compare(before map[string]string) error {
	got := make([]ratelimit.Result, len(a.buckets))
	reply, err := a.reply.Result()
	if err != nil {
		return err
	}
	for turn, want := range a.want {
		if err := readReply(reply, place{turn + 1, len(a.want)}, a.buckets, indices(a.buckets), got); err != nil {
			return err
		}
		for i := range want {
			if got[i] != want[i] {
				return fmt.Errorf("%+v, call %d of %d:\ngot  %+v\nwant %+v", a.buckets[i], turn+1, len(a.want), got[i], want[i])
			}
		}
	}
	for i := range a.buckets {
		b, m := &a.buckets[i], &a.models[i]
		state := a.states[i].Val()
		if !m.wrote && state != before[b.Key.String()] {
			return fmt.Errorf("%+v, which changes nothing: the state changed", *b)
		}
		before[b.Key.String()] = state
		if err := m.compareState(state); err != nil {
			return fmt.Errorf("%+v: %w", *b, err)
		}
		if life, _ := a.lives[i].Int64(); m.exists() {
			if left := float64(life - extraLife); left > m.life+2 || left < m.life-10_000 {
				return fmt.Errorf("%+v: lives %v ms, want %v", *b, left, m.life)
			}
		}
	}
	return nil
}

func (m *modelBucket) compareState(state string) error {
	if !m.exists() {
		if state != "" {
			return fmt.Errorf("there is a key of %d bytes", len(state))
		}
		return nil
	}
	clock, level, ok := m.log.Clock, 0.0, false
	var got algorithm.Clock
	var steps int64
	if m.isLog() {
		ok = len(state) >= 37 && (state[0] == 'l' || state[0] == 'L')
		if ok {
			got.Offset = integer(state, 23, 7)
			got.Last, steps = lastAndMark(state, 16)
		}
	} else {
		clock = m.tokens.Clock
		ok = len(state) == 28 || len(state) == 27 || len(state) == 36
		if ok {
			level = math.Float64frombits(uint64(integer(state, 0, 8)))
			got.Last, steps = lastAndMark(state, 8)
		}
		switch len(state) {
		case 27:
			got.Offset = integer(state, 20, 7)
		case 36:
			got.Offset = integer(state, 30, 6)
		}
		ok = ok && math.Float64bits(level) == math.Float64bits(m.tokens.Level)
	}
	if want := m.mark.Steps(clock.Last); ok && steps != want {
		return fmt.Errorf("state %q: a mark for %d steps, want %d", state, steps, want)
	}
	if !ok || got != clock {
		return fmt.Errorf("state %q: got %v %+v, want %v %+v", state, level, got, m.tokens.Level, clock)
	}
	return nil
}

// lastAndMark is what stands in the 7 bytes from start.
func lastAndMark(s string, start int) (last, steps int64) {
	n := integer(s, start, 7)
	return n % (1 << 52), n >> 52
}

// integer is the little-endian number in size bytes from start.
func integer(s string, start, size int) int64 {
	var b [8]byte
	copy(b[:], s[start:start+size])
	return int64(binary.LittleEndian.Uint64(b[:]))
}

// diffCalls is how many calls the differential test makes of each kind.
func diffCalls() int {
	if os.Getenv("ENVOY_RLS_LONG") != "" {
		return 300_000
	}
	return 10_000
}

func TestTheScriptDoesWhatGoDoes(t *testing.T) {
	_, c := scriptServer(t)
	s := underTestClock(t, script.source)
	load(t, c, s)
	for seed := range uint64(2) {
		require.NoError(t, differ(c, s, seed, false, diffCalls()), "seed %d, changing policies", seed)
		require.NoError(t, differ(c, s, seed, true, diffCalls()), "seed %d, long logs", seed)
	}
}
