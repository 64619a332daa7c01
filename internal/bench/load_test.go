package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"
)

type callerFunc func(worker int, request []byte) (Verdict, error)

func (f callerFunc) Call(_ context.Context, worker int, request []byte) (Verdict, error) {
	return f(worker, request)
}

func anyCalls() *Calls {
	s := &Scenario{Domain: "d", Keys: Keys{Count: 1000}, Calls: []Call{{Weight: 1, Descriptors: []Descriptor{{{Key: "a"}}}}}}
	return s.Make("run", 1)
}

// stalling takes a millisecond for a call, but none ends between stop and resume.
func stalling(stop, resume time.Duration) Caller {
	start := time.Now()
	return callerFunc(func(int, []byte) (Verdict, error) {
		time.Sleep(time.Millisecond)
		if at := time.Since(start); at >= stop && at < resume {
			time.Sleep(resume - at)
		}
		return Allowed, nil
	})
}

// A server stands still for one of ten seconds. Nearly a tenth of the calls was due meanwhile, and each is told with all of its wait, although
// the few workers could send hardly any of them: half of that tenth waited half a second or more.
func TestAnOpenLoopShowsAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Load{Workers: 4, Rate: 1000, Open: true, Duration: 10 * time.Second}
		r, err := l.Run(t.Context(), stalling(4*time.Second, 5*time.Second), anyCalls())
		require.NoError(t, err)
		require.EqualValues(t, 10_000, r.Total(), "all that were due")
		require.Equal(t, time.Millisecond, r.Latency.At(0.50))
		require.InDelta(t, 0.9, r.Latency.At(0.99).Seconds(), 0.05)
		require.InDelta(t, 1, r.Latency.Max().Seconds(), 0.01)
		require.InDelta(t, 0.9, r.Lag.At(0.99).Seconds(), 0.05)
	})
}

// In a closed loop the same stall befalls the calls under way only: that is what an open loop is for.
func TestAClosedLoopDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := Load{Workers: 4, Duration: 10 * time.Second}
		r, err := l.Run(t.Context(), stalling(4*time.Second, 5*time.Second), anyCalls())
		require.NoError(t, err)
		require.InDelta(t, 4*9000, r.Total(), 10)
		require.Equal(t, time.Millisecond, r.Latency.At(0.999))
		require.InDelta(t, 1, r.Latency.Max().Seconds(), 0.01)
	})
}

func TestAnOpenLoopKeepsItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var sent []time.Duration
		l := Load{Workers: 50, Rate: 200, Open: true, Duration: time.Second}
		r, err := l.Run(t.Context(), callerFunc(func(int, []byte) (Verdict, error) {
			mu.Lock()
			sent = append(sent, time.Since(start))
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			return Denied, nil
		}), anyCalls())
		require.NoError(t, err)
		slices.Sort(sent)
		require.Len(t, sent, 200)
		for i, at := range sent {
			require.Equal(t, time.Duration(i)*5*time.Millisecond, at)
		}
		require.EqualValues(t, 200, r.Denied)
		require.Zero(t, r.Lag.At(0.5).Truncate(2*time.Microsecond))
		require.InDelta(t, 100*time.Millisecond, r.Latency.At(0.5), float64(200*time.Microsecond))
	})
}

func TestAClosedLoopWithARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		l := Load{Workers: 8, Rate: 400, Duration: 5 * time.Second}
		r, err := l.Run(t.Context(), stalling(time.Second, 2*time.Second), anyCalls())
		require.NoError(t, err)
		require.InDelta(t, 2000, r.Total(), 10, "a stall is made up for")
		require.Equal(t, time.Millisecond, r.Latency.At(0.99), "from when a call was sent")
		require.InDelta(t, 5, time.Since(start).Seconds(), 0.1)
	})
}

func TestErrorsAndBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var progress []float64
		l := Load{Workers: 2, Duration: time.Second, Progress: func(done float64) { progress = append(progress, done) }}
		r, err := l.Run(t.Context(), callerFunc(func(worker int, _ []byte) (Verdict, error) {
			if worker == 0 {
				return 0, status.Error(codes.Unavailable, "down")
			}
			time.Sleep(time.Millisecond)
			return Allowed, nil
		}), anyCalls())
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"Unavailable": 100}, r.Errors, "a worker that fails waits")
		require.EqualValues(t, 1000, r.Allowed)
		require.EqualValues(t, 1100, r.Total())
		require.EqualValues(t, r.Total(), r.Made[0])
		require.Equal(t, time.Second, time.Since(start))
		require.True(t, slices.IsSorted(progress))
		require.Equal(t, 1.0, progress[len(progress)-1])

		l = Load{Workers: 3, Duration: time.Hour, Calls: 10}
		r, err = l.Run(t.Context(), stalling(0, 0), anyCalls())
		require.NoError(t, err)
		require.EqualValues(t, 10, r.Total())

		for _, l := range []Load{{}, {Workers: 1}, {Workers: 1, Duration: 1, Open: true}, {Workers: 1, Duration: 1, Rate: -1}} {
			_, err := l.Run(t.Context(), stalling(0, 0), anyCalls())
			require.Error(t, err)
		}
	})
}

func TestALoadCanBeCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		start := time.Now()
		_, err := Load{Workers: 3, Rate: 1, Open: true, Duration: time.Hour}.Run(ctx, stalling(0, 0), anyCalls())
		require.True(t, errors.Is(err, context.Canceled))
		require.InDelta(t, 1, time.Since(start).Seconds(), 0.01)
	})
}

// The histogram's shares are those of the sorted values, to three digits.
func TestLatenciesAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, other := NewLatencies(), NewLatencies()
		micros := rapid.SliceOfN(rapid.Int64Range(1, 20_000_000), 1, 300).Draw(t, "microseconds")
		for i, n := range micros {
			to := l
			if i%3 == 0 {
				to = other
			}
			to.Add(time.Duration(n) * time.Microsecond)
		}
		l.Merge(other)
		slices.Sort(micros)
		for _, q := range []float64{0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1} {
			rank := q * float64(len(micros)) // the one below or above it will do
			low, high := float64(micros[max(int(rank), 1)-1]), float64(micros[int(math.Ceil(rank))-1])
			if got := float64(l.At(q).Microseconds()); got < low*0.999-1 || got > high*1.001+1 {
				t.Fatalf("share %g of %d: got %g, want %g to %g", q, len(micros), got, low, high)
			}
		}
		if l.Count() != int64(len(micros)) {
			t.Fatalf("%d of %d", l.Count(), len(micros))
		}
	})
	require.Zero(t, NewLatencies().At(0.5))
	all := NewLatencies()
	all.Add(-1)
	all.Add(time.Hour)
	require.InDelta(t, longest.Seconds(), all.Max().Seconds(), 1, "beyond the bounds counts as at them")
}

func TestKeysFollowTheirDraw(t *testing.T) {
	const calls = 200_000
	for name, k := range map[string]Keys{
		"uniform":        {Count: 100_000, Draw: Uniform},
		"few":            {Count: 3, Draw: Uniform},
		"zipf":           {Count: 100_000, Draw: Zipf, Exponent: 1.1},
		"steep zipf":     {Count: 2_000_000, Draw: Zipf, Exponent: 2},
		"few zipf":       {Count: 5, Draw: Zipf, Exponent: 1.5},
		"in sequence":    {Count: 1000, Draw: Sequence},
		"only one there": {Count: 1, Draw: Uniform},
	} {
		t.Run(name, func(t *testing.T) {
			s := &Scenario{Keys: k, Calls: []Call{{Weight: 1}}}
			m := s.Make("", 7).maker(0)
			for range calls {
				m.next()
			}
			require.Less(t, m.bins.deviation(m.drawn), float64(MaxDeviation))
			sum := 0.0
			for _, p := range m.bins.chance {
				sum += p
			}
			require.InDelta(t, 1, sum, 1e-9)
		})
	}
}

// What is off by a little is found: a key left out, a few keys only, another exponent.
func TestWrongKeysAreFound(t *testing.T) {
	b := Keys{Count: 100_000, Draw: Uniform}.bins()
	z := Keys{Count: 100_000, Draw: Zipf, Exponent: 1.1}.bins()
	r := rand.New(rand.NewPCG(1, 2))
	other := rand.NewZipf(r, 1.2, 1, 99_999)
	tests := map[string]struct {
		bins *bins
		draw func() uint64
	}{
		"the last tenth left out": {b, func() uint64 { return r.Uint64N(90_000) }},
		"one key":                 {b, func() uint64 { return 17 }},
		"uniform for zipf":        {z, func() uint64 { return r.Uint64N(100_000) }},
		"another exponent":        {z, other.Uint64},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			counts := make([]uint64, len(test.bins.first))
			for range 20_000 {
				counts[test.bins.find(test.draw())]++
			}
			require.Greater(t, test.bins.deviation(counts), float64(MaxDeviation))
		})
	}
}

func TestZipfHasTheShapeOfItsName(t *testing.T) {
	k := Keys{Count: 1000, Draw: Zipf, Exponent: 1.5}
	draw := k.drawer(rand.New(rand.NewPCG(3, 4)), nil)
	counts := make([]float64, k.Count)
	for range 1_000_000 {
		counts[draw()]++
	}
	require.InEpsilon(t, 2.828, counts[0]/counts[1], 0.02, "2^1.5")
	require.InEpsilon(t, 5.196, counts[0]/counts[2], 0.02, "3^1.5")
	require.InEpsilon(t, 31.62, counts[0]/counts[9], 0.05, "10^1.5")
}
