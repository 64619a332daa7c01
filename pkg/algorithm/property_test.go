package algorithm_test

import (
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// exactBucket is a token bucket in rational numbers.
type exactBucket struct {
	level *big.Rat
	last  int64
}

func rat(f float64) *big.Rat { return new(big.Rat).SetFloat64(f) }

func clampRat(x *big.Rat, low, high *big.Rat) *big.Rat {
	if x.Cmp(low) < 0 {
		return low
	}
	if x.Cmp(high) > 0 {
		return high
	}
	return x
}

func (e *exactBucket) pass(l algorithm.Limits, now int64) {
	refill := new(big.Rat).Mul(rat(l.Rate), rat(float64(now-e.last)))
	e.level.Add(e.level, refill)
	if brim := rat(l.Capacity); e.level.Cmp(brim) > 0 {
		e.level = brim
	}
	e.last = now
}

// drawDyadic draws limits with which float64 has nothing to round, so that both must agree to the bit.
func drawDyadic(t *rapid.T) algorithm.Limits {
	return algorithm.Limits{
		Kind:     algorithm.TokenBucket,
		Capacity: float64(rapid.Int64Range(1, 1000).Draw(t, "capacity")),
		Rate:     float64(rapid.Int64Range(1, 1<<12).Draw(t, "rate")) / (1 << 20),
	}
}

func TestTokenBucketAgainstRationalNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawDyadic(t)
		s := algorithm.NewTokens(l, 0)
		want := &exactBucket{level: rat(l.Capacity)}
		now := int64(0)
		for range rapid.IntRange(1, 50).Draw(t, "calls") {
			now += rapid.Int64Range(0, 100_000).Draw(t, "us")
			if rapid.IntRange(0, 9).Draw(t, "reload") == 0 {
				want.pass(l, now) // what has run over the brim by now has run over
				s = s.Refund(l, 0, now)
				l = drawDyadic(t)
			}
			want.pass(l, now)
			stepTokens(t, l, &s, want, now)
			if rat(s.Remaining(l, now)).Cmp(want.level) != 0 {
				t.Fatalf("level: got %v, want %v", s.Remaining(l, now), want.level)
			}
		}
	})
}

func stepTokens(t *rapid.T, l algorithm.Limits, s *algorithm.Tokens, want *exactBucket, now int64) {
	cost := rapid.Uint64Range(1, uint64(l.Capacity)).Draw(t, "cost")
	need := rat(float64(cost))
	switch rapid.SampledFrom([]string{"take", "take", "take", "refund", "force"}).Draw(t, "op") {
	case "take":
		wait := s.Wait(l, cost, now)
		next, admitted := s.Take(l, cost, now)
		if fits := want.level.Cmp(need) >= 0; admitted != fits || fits != (wait == 0) {
			t.Fatalf("take %d of %v: got %v and wait %d", cost, want.level, admitted, wait)
		}
		missing := new(big.Rat).Sub(need, want.level)
		if exact, _ := missing.Quo(missing, rat(l.Rate)).Float64(); !admitted && float64(wait) != math.Ceil(exact) {
			t.Fatalf("wait: got %d, want %v", wait, exact)
		}
		if *s = next; admitted {
			want.level.Sub(want.level, need)
		}
	case "refund":
		*s = s.Refund(l, cost, now)
		want.level = clampRat(want.level.Add(want.level, need), rat(-1e9), rat(l.Capacity))
	case "force":
		next, uncharged := s.Force(l, cost, 50, now)
		*s = next
		want.level.Sub(want.level, rat(float64(cost-uncharged)))
		if floor := rat(-50); want.level.Cmp(floor) < 0 || uncharged > 0 && new(big.Rat).Sub(want.level, rat(1)).Cmp(floor) >= 0 {
			t.Fatalf("force %d: level %v, uncharged %d", cost, want.level, uncharged)
		}
	}
}

// drawLimits draws any limits that the loader lets pass.
func drawLimits(t *rapid.T) algorithm.Limits {
	l := algorithm.Limits{Kind: algorithm.TokenBucket}
	l.Capacity = math.Floor(math.Exp(rapid.Float64Range(0, math.Log(3e10)).Draw(t, "log capacity")))
	slowest := max(l.Capacity/tenYears, 1./43200)
	l.Rate = math.Exp(rapid.Float64Range(math.Log(slowest), math.Log(6e8)).Draw(t, "log rate")) / 60e6
	return l
}

func TestThePromisedWaitIsExactForAnyLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawLimits(t)
		s := algorithm.NewTokens(l, 0)
		now := int64(0)
		for range 20 {
			cost := rapid.Uint64Range(1, uint64(l.Capacity)).Draw(t, "cost")
			now += int64(rapid.Float64Range(0, l.Capacity/l.Rate).Draw(t, "us"))
			wait := s.Wait(l, cost, now)
			if _, early := s.Take(l, cost, now+wait-1); wait > 0 && early {
				t.Fatalf("%+v of %+v: admitted 1 us before %d", s, l, wait)
			}
			next, admitted := s.Take(l, cost, now+wait)
			if !admitted {
				t.Fatalf("%+v of %+v: denied after %d", s, l, wait)
			}
			s, now = next, now+wait
		}
	})
}

func TestNoIntervalAdmitsMoreThanCapacityPlusRefill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := tokenBucket(float64(rapid.IntRange(1, 50).Draw(t, "capacity")), rapid.Float64Range(1, 1e7).Draw(t, "rate"))
		s := algorithm.NewTokens(l, 0)
		type event struct {
			at    int64
			total float64
		}
		events := []event{{}}
		period := int64(1 / l.Rate)
		for now, total := int64(0), 0.0; len(events) < 60; {
			now += rapid.Int64Range(0, 3*period+1).Draw(t, "us")
			cost := rapid.Uint64Range(1, uint64(l.Capacity)).Draw(t, "cost")
			next, admitted := s.Take(l, cost, now)
			if s = next; admitted {
				total += float64(cost)
			}
			events = append(events, event{now, total})
		}
		for i, from := range events[1:] {
			for _, to := range events[i+1:] {
				got, most := to.total-events[i].total, l.Capacity+l.Rate*float64(to.at-from.at)
				if got > most+1e-6 {
					t.Fatalf("%v admitted from %d to %d, at most %v", got, from.at, to.at, most)
				}
			}
		}
	})
}

// TestAnUndoNeverLetsOneTooManyIn compares a bucket with a take that is given back to one that never had it.
func TestAnUndoNeverLetsOneTooManyIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := drawDyadic(t)
		now := int64(0)
		s, _ := algorithm.NewTokens(l, now).Take(l, rapid.Uint64Range(0, uint64(l.Capacity)).Draw(t, "used"), now)
		now += rapid.Int64Range(0, 1_000_000).Draw(t, "us before")
		cost := rapid.Uint64Range(1, uint64(l.Capacity)).Draw(t, "cost")
		before, at, without := s.Remaining(l, now), now, s
		taken, admitted := s.Take(l, cost, now)
		if !admitted {
			t.Skip("nothing to give back")
		}
		for range rapid.IntRange(0, 5).Draw(t, "takes of others") {
			now += rapid.Int64Range(0, 1_000_000).Draw(t, "us between")
			other := rapid.Uint64Range(1, uint64(l.Capacity)).Draw(t, "other")
			if next, ok := taken.Take(l, other, now); ok {
				taken = next
				without, ok = without.Take(l, other, now)
				if !ok {
					t.Fatalf("admitted only because of a take")
				}
			}
		}
		now += rapid.Int64Range(0, 1_000_000).Draw(t, "us after")
		undone := taken.Undo(l, cost, before, at, now)
		if got, most := undone.Level, without.Remaining(l, now); got > most {
			t.Fatalf("got %v tokens, without the take %v", got, most)
		}
		if undone.Level < taken.Remaining(l, now) {
			t.Fatalf("an undo took tokens")
		}
	})
}

// plainLog is a sliding log as a list with one element for each entry.
type plainLog []int64

func (p plainLog) inside(l algorithm.Limits, now int64) plainLog {
	i, _ := slices.BinarySearch(p, now-l.Window+1)
	return p[i:]
}

func TestSlidingLogAgainstAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		drawLog := func() algorithm.Limits {
			return slidingLog(float64(rapid.IntRange(1, 30).Draw(t, "limit")), rapid.Int64Range(1, 1000).Draw(t, "window"))
		}
		l := drawLog()
		g := newLog(rapid.IntRange(1, 3).Draw(t, "room"))
		var want plainLog
		now := int64(0)
		for range rapid.IntRange(1, 80).Draw(t, "calls") {
			now += rapid.Int64Range(0, 200).Draw(t, "us")
			if rapid.IntRange(0, 9).Draw(t, "reload") == 0 {
				l = drawLog()
			}
			want = stepLog(t, l, g, want, now)
			in := want.inside(l, now)
			if int(g.Count(l, now)) != len(in) || len(in) > 0 && g.Reset(l, now) != in[0]+l.Window-now {
				t.Fatalf("got %d until %d, want %v at %d", g.Count(l, now), g.Reset(l, now), in, now)
			}
		}
	})
}

func stepLog(t *rapid.T, l algorithm.Limits, g *algorithm.Log, want plainLog, now int64) plainLog {
	cost := rapid.IntRange(1, int(l.Capacity)).Draw(t, "cost")
	in := want.inside(l, now)
	grow := func() {
		if g.Full(now) {
			g.Grow(make([]algorithm.Run, g.Room()+1))
		}
	}
	switch rapid.SampledFrom([]string{"take", "take", "take", "take", "refund", "undo", "force"}).Draw(t, "op") {
	case "refund":
		g.Refund(l, uint64(cost), now)
		return in[:max(0, len(in)-cost)]
	case "undo":
		if len(in) == 0 {
			return want
		}
		at := in[rapid.IntRange(0, len(in)-1).Draw(t, "undone")]
		g.Undo(l, uint64(cost), at, now)
		return slices.DeleteFunc(slices.Clone(in), func(e int64) bool {
			if e == at {
				cost--
			}
			return e == at && cost >= 0
		})
	case "force":
		grow()
		room := max(0, int(l.Capacity)-len(in))
		if got := g.Force(l, uint64(cost), now); int(got) != max(0, cost-room) {
			t.Fatalf("uncharged: got %d, room for %d of %d", got, room, cost)
		}
		if charged := min(room, cost); charged > 0 {
			return append(slices.Clone(in), slices.Repeat([]int64{now}, charged)...)
		}
		return want
	}
	grow()
	return takeLog(t, l, g, want, now, cost)
}

func takeLog(t *rapid.T, l algorithm.Limits, g *algorithm.Log, want plainLog, now int64, cost int) plainLog {
	in := want.inside(l, now)
	wait := g.Wait(l, uint64(cost), now)
	admitted := g.Take(l, uint64(cost), now)
	leave := len(in) + cost - int(l.Capacity)
	if admitted != (leave <= 0) {
		t.Fatalf("take %d with %d in the window of %d: got %v", cost, len(in), int(l.Capacity), admitted)
	}
	if admitted {
		return append(slices.Clone(in), slices.Repeat([]int64{now}, cost)...)
	}
	if exact := in[leave-1] + l.Window - now; wait != exact {
		t.Fatalf("wait: got %d, want %d", wait, exact)
	}
	return want
}
