package redisbackend_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/storetest"
)

// key is that of a policy of its own, with a hash tag.
func key(tag, id string) policy.Key {
	return policy.NewKey(policy.Part{Name: "tenant", Value: tag}, id)
}

// take is a Take of one from a bucket that hardly refills.
func take(k policy.Key) ratelimit.Bucket {
	return ratelimit.Bucket{Key: k, Limits: storetest.TB(100, 1./(24*60)), Op: ratelimit.Take, Cost: 1}
}

// TestNothingIsSentTwice counts how often a script ran while connections misbehave, for how many calls each time. Every run must belong to a
// call: there are no more than calls that were answered or may have run.
func TestNothingIsSentTwice(t *testing.T) {
	server := redistest.StartStandalone(t)
	faults := []struct {
		name string
		how  fault
		made bool // the fault is our invention: the script has run, though the reply denies it
	}{
		{name: "a reply is lost", how: lost},
		{name: "the connection is cut in the middle of a batch's replies", how: cutReply},
		{name: "the connection is cut in the middle of a batch", how: cutRequest},
		{name: "the first reply is LOADING", how: loading, made: true},
	}
	for i, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			p := redistest.StartProxy(t, server)
			reasons := tally{}
			s := count(t, redisbackend.Options{URLs: []string{p.URL()}, Timeout: patient, OnFailure: reasons.add})
			k := key("count", strconv.Itoa(i))
			spoil(p, f.how)
			answered, unknown, unsent := callMany(s, k, 64, 10_000)
			p.Heal()
			runs := runsOf(t, server, k)
			scripts := number(t, server, k.String()+":scripts")
			t.Logf("10,000 calls: %d answered, %d unknown, %d not sent, %d runs in %d scripts; %v", answered, unknown, unsent, runs, scripts, reasons.String())
			require.Less(t, scripts, runs, "calls are merged")
			require.GreaterOrEqual(t, runs, answered)
			require.LessOrEqual(t, runs, 10_000)
			if !f.made {
				require.LessOrEqual(t, runs, answered+unknown)
			}
			require.Positive(t, answered, "the fault must not be all there is")
			require.Positive(t, unknown+unsent, "the fault left no trace")
		})
	}
}

type fault int

const (
	lost fault = iota + 1
	cutReply
	cutRequest
	loading
)

// spoil lets a part of what passes go wrong. Handshakes are spared as a rule, since they are short.
func spoil(p *redistest.Proxy, how fault) {
	const oneIn = 20
	f := func(piece []byte) ([]byte, bool) {
		if rand.IntN(oneIn) != 0 {
			return piece, true
		}
		switch how {
		case lost:
			return nil, false
		case loading:
			return append([]byte("-LOADING Redis is loading the dataset in memory\r\n"), afterFirst(piece)...), true
		default:
			return piece[:len(piece)/2], false
		}
	}
	if how == cutRequest {
		p.SpoilRequests(f)
		return
	}
	p.SpoilReplies(f)
}

// afterFirst is what follows the first line.
func afterFirst(piece []byte) []byte {
	_, rest, _ := bytes.Cut(piece, []byte("\r\n"))
	return rest
}

// count starts a store whose script counts its runs, as runsOf tells.
func count(t *testing.T, o redisbackend.Options) *redisbackend.Store {
	t.Helper()
	s, err := redisbackend.NewCounting(o)
	require.NoError(t, err)
	require.NoError(t, s.Start(t.Context()))
	t.Cleanup(s.Close)
	return s
}

// callMany lets callers call, each again and again, and tells what became of the calls: how many may have run, and how many surely did not.
func callMany(s ratelimit.Store, k policy.Key, callers, calls int) (answered, unknown, unsent int) {
	var a, u, n, started atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			buckets := []ratelimit.Bucket{take(k)}
			var results []ratelimit.Result
			for started.Add(1) <= int64(calls) {
				results = s.Acquire(context.Background(), buckets, results)
				var err *redisbackend.Error
				switch {
				case results[0].Err == nil:
					a.Add(1)
				case errors.As(results[0].Err, &err) && err.MayHaveRun:
					u.Add(1)
				default:
					n.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return int(a.Load()), int(u.Load()), int(n.Load())
}

// runsOf is how often the script that counts was run for a call. A run for several identical ones counts for each.
func runsOf(t *testing.T, server *redistest.Server, k policy.Key) int {
	t.Helper()
	return number(t, server, k.String())
}

func number(t *testing.T, server *redistest.Server, name string) int {
	t.Helper()
	text, err := server.Do(context.Background(), "GET", name)
	require.NoError(t, err)
	if text == nil {
		return 0
	}
	n, err := strconv.Atoi(text.(string))
	require.NoError(t, err)
	return n
}

// tally counts failures by their reason.
type tally struct{ counts sync.Map }

func (t *tally) add(f *redisbackend.Failure) {
	n, _ := t.counts.LoadOrStore(f.Error.Reason, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
}

func (t *tally) String() string {
	text := ""
	t.counts.Range(func(reason, n any) bool {
		text += string(reason.(redisbackend.Reason)) + "=" + strconv.FormatInt(n.(*atomic.Int64).Load(), 10) + " "
		return true
	})
	return text
}
