package redisbackend_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// judged is a few buckets that many callers use at once, and what is recorded of it. No two have the same.
type judged struct {
	*testing.T
	store   ratelimit.Store
	round   int64
	buckets []accuracy.Bucket
	keys    []policy.Key
}

// The buckets: a user's, in one slot, and a site's in another.
const (
	userTokens = iota
	userLog
	siteTokens
)

// rounds counts them.
var rounds atomic.Int64

func newJudged(t *testing.T, s ratelimit.Store) *judged {
	j := &judged{T: t, store: s, round: rounds.Add(1)}
	limits := []algorithm.Limits{
		{Kind: algorithm.TokenBucket, Capacity: 5, Rate: 20e-6},
		{Kind: algorithm.SlidingLog, Capacity: 8, Window: 200_000},
		{Kind: algorithm.TokenBucket, Capacity: 60, Rate: 1e-9},
	}
	for i, l := range limits {
		tag := []string{"user", "user", "site"}[i]
		k := policy.NewKey(policy.Part{Name: "tenant", Value: fmt.Sprint(tag, "-", j.round)}, []string{"tokens", "log", "site"}[i])
		j.keys = append(j.keys, k)
		j.buckets = append(j.buckets, accuracy.Bucket{Key: k.String(), Limits: l, Group: tag, Fresh: true})
	}
	return j
}

func (j *judged) bucket(i int, op ratelimit.Op, cost uint64) ratelimit.Bucket {
	return ratelimit.Bucket{Key: j.keys[i], Limits: j.buckets[i].Limits, Op: op, Cost: cost}
}

// request is a call that somebody may make.
func (j *judged) request(random *rand.Rand) []ratelimit.Bucket {
	tokens, log, site := j.bucket(userTokens, ratelimit.Take, 1), j.bucket(userLog, ratelimit.Take, 1), j.bucket(siteTokens, ratelimit.Take, 1)
	switch n := random.IntN(16); {
	case n < 6:
		return []ratelimit.Bucket{tokens}
	case n < 9:
		return []ratelimit.Bucket{tokens, log}
	case n < 12:
		return []ratelimit.Bucket{log, site}
	case n < 14:
		tokens.Cost = 3
		return []ratelimit.Bucket{tokens, site}
	default:
		log.Op = ratelimit.Peek
		return []ratelimit.Bucket{log}
	}
}

// run has many callers call for a while. meanwhile happens in the middle of it.
func (j *judged) run(length time.Duration, meanwhile func(*accuracy.Recorder)) *accuracy.Record {
	recorder := accuracy.NewRecorder(j.buckets)
	end := time.Now().Add(length)
	var all sync.WaitGroup
	for caller := range 12 {
		all.Go(func() {
			random, w := rand.New(rand.NewPCG(uint64(j.round), uint64(caller))), recorder.Worker()
			for time.Now().Before(end) {
				w.Acquire(context.Background(), j.store, j.request(random))
				time.Sleep(time.Duration(random.Int64N(int64(4 * time.Millisecond))))
			}
		})
	}
	if meanwhile != nil {
		time.Sleep(length / 2)
		meanwhile(recorder)
	}
	all.Wait()
	w := recorder.Worker()
	j.burst(w)
	for i := range j.buckets {
		w.Acquire(context.Background(), j.store, []ratelimit.Bucket{j.bucket(i, ratelimit.Peek, 1)})
	}
	return recorder.Record()
}

// burst gives back to a bucket that is full already, and then takes all it has.
func (j *judged) burst(w *accuracy.Worker) {
	time.Sleep(260 * time.Millisecond)
	w.Acquire(context.Background(), j.store, []ratelimit.Bucket{j.bucket(userTokens, ratelimit.Take, 1)}) // or there is nothing to give back to
	w.Acquire(context.Background(), j.store, []ratelimit.Bucket{j.bucket(userTokens, ratelimit.Refund, 5)})
	for range 20 {
		w.Acquire(context.Background(), j.store, []ratelimit.Bucket{j.bucket(userTokens, ratelimit.Take, 1)})
	}
}

func (j *judged) verdict(r *accuracy.Record) *accuracy.Verdict {
	v, err := accuracy.Check(r, accuracy.Options{Settle: 10 * time.Millisecond}) // callers wait until all is given back
	require.NoError(j, err)
	return v
}

// accuracyLength is for how long stores are judged that keep their limits.
func accuracyLength() time.Duration {
	if os.Getenv("ENVOY_RLS_LONG") == "1" {
		return 20 * time.Second
	}
	return 700 * time.Millisecond
}

// planted are faults of a store, each found by what is recorded of many callers.
var planted = []struct {
	name    string
	want    accuracy.Kind
	changes []string // of the script: a text and what stands in its place
	cluster bool     // it takes requests over several slots
}{
	{"a lost write", accuracy.TooMuch, []string{
		"call('SET', key, pack('<dI6BI5d', level, low, high, capacity, pace), 'PX', life)",
		"if now % 7 > 0 then call('SET', key, pack('<dI6BI5d', level, low, high, capacity, pace), 'PX', life) end",
	}, false},
	{"a lost write of a log", accuracy.TooMuch, []string{
		"call('SET', key, tail, 'PX', life)", "if now % 7 > 0 then call('SET', key, tail, 'PX', life) end",
	}, false},
	{"given back without a clamp", accuracy.TooMuch, []string{
		"math.min(capacity, b + cost)", "b + cost", "if b > capacity then b = capacity end", "",
	}, false},
	{"a TTL too short", accuracy.TooMuch, []string{"life = (life + ahead) / 1000", "life = (life + ahead) / 10000"}, false},
	{"a TTL too short for a log", accuracy.TooMuch, []string{"floor((life + ahead) / 1000)", "floor((life + ahead) / 10000)"}, false},
	{"merged calls get one more than there is", accuracy.TooMuch, []string{"room = b\n", "room = b + 1\n"}, false},
	{"a log that forgets too early", accuracy.TooMuch, []string{"local edge = now - pace", "local edge = now - pace * 0.9"}, false},
	{"all or none broken", accuracy.ReadsTooLittle, []string{"elseif admitted == 0 or op == 2 then", "elseif op == 2 then"}, false},
	{"a refill too slow", accuracy.WronglyDenied, []string{"b = a + c * pace", "b = a + c * pace * 0.7"}, false},
	{"given back twice", accuracy.ReadsTooMuch, []string{"b + (cost - spilled)", "b + 2 * (cost - spilled)"}, true},
	{"not given back", accuracy.ReadsTooLittle, []string{"b + (cost - spilled)", "b"}, true},
}

// TestAccuracy judges what a store says to many callers, and the same of stores with faults.
func TestAccuracy(t *testing.T) {
	server := redistest.StartStandalone(t)
	alone := redisbackend.Options{URLs: []string{server.URL()}, Timeout: patient}
	many := redisbackend.Options{URLs: shared.Cluster(t).URLs(), Timeout: patient}
	for name, o := range map[string]redisbackend.Options{"standalone": alone, "cluster": many} {
		t.Run(name, func(t *testing.T) {
			j := newJudged(t, open(t, o))
			v := j.verdict(j.run(accuracyLength(), nil))
			require.NoError(t, v.Err())
			require.Greater(t, v.Denials, 100)
			require.Zero(t, v.Unknown)
		})
	}
	for _, p := range planted {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			o := alone
			if p.cluster {
				o = many
			}
			s, err := redisbackend.NewMutant(t, o, p.changes...)
			require.NoError(t, err)
			require.NoError(t, s.Start(t.Context()))
			defer s.Close()
			requireCaught(t, s, p.want)
		})
	}
	t.Run("read, then write", func(t *testing.T) {
		t.Parallel()
		requireCaught(t, readThenWrite{open(t, alone)}, accuracy.TooMuch)
	})
}

// requireCaught has callers use a store until a fault of this kind is found.
func requireCaught(t *testing.T, s ratelimit.Store, want accuracy.Kind) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		j := newJudged(t, s)
		v := j.verdict(j.run(300*time.Millisecond, nil))
		for _, f := range v.Findings {
			if f.Kind == want {
				t.Log(f.String())
				return
			}
		}
		require.True(t, time.Now().Before(end), "not found: %v", v.Err())
	}
}

// readThenWrite is how a store without a script would do it.
type readThenWrite struct{ *redisbackend.Store }

func (s readThenWrite) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	looks, writes := make([]ratelimit.Bucket, len(buckets)), make([]ratelimit.Bucket, len(buckets))
	for i, b := range buckets {
		looks[i], writes[i] = b, b
		if b.Op == ratelimit.Take {
			looks[i].Op, writes[i].Op = ratelimit.Peek, ratelimit.Force
		}
	}
	results = s.Store.Acquire(ctx, looks, results)
	for _, r := range results {
		if r.Outcome != ratelimit.Admitted {
			return results
		}
	}
	s.Store.Acquire(ctx, writes, nil)
	return results
}

// TestAccuracyWhenClocksStep: a clock that steps forward gives back what is not due. With that known, as much is admitted as is
// stated and no more; without, it is found. One that steps back gives nothing.
func TestAccuracyWhenClocksStep(t *testing.T) {
	server := redistest.StartStandalone(t, redistest.Options{MovingClock: true})
	s := open(t, redisbackend.Options{URLs: []string{server.URL()}, Timeout: patient})
	clock := time.Duration(0)
	for _, test := range []struct {
		name       string
		step       time.Duration
		capacities float64 // that it may give back
		unknown    bool    // as if nobody knew of the step
		want       accuracy.Kind
	}{
		{name: "forward", step: time.Hour, capacities: 1},
		{name: "forward, unknown", step: time.Hour, unknown: true, want: accuracy.TooMuch},
		{name: "back", step: -time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := newJudged(t, s)
			v := j.verdict(j.run(accuracyLength(), func(r *accuracy.Recorder) {
				from := r.Now()
				clock += test.step
				require.NoError(t, server.SetClock(clock))
				if test.unknown {
					return
				}
				for i := range j.buckets { // time up to the first call after a step back is not credited
					s.Acquire(t.Context(), []ratelimit.Bucket{j.bucket(i, ratelimit.Peek, 1)}, nil)
				}
				r.Fault(accuracy.Fault{Why: test.name, From: from, To: r.Now(), Capacities: test.capacities})
			}))
			if test.want == "" {
				require.NoError(t, v.Err())
				return
			}
			require.ErrorContains(t, v.Err(), string(test.want))
		})
	}
}
