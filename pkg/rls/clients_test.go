package rls_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// world is a service under one policy, with its store behind a rejection cache, in a bubble of time.
type world struct {
	t       *testing.T
	began   time.Time
	service *rls.Service
}

const day = 10 * time.Minute // that a client works for

func newWorld(t *testing.T, text string) *world {
	f, err := policy.Parse("policies.yaml", []byte("policies:\n"+text))
	require.NoError(t, err, text)
	set, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err, text)
	w := &world{t: t, began: time.Now()}
	l := ratelimit.New(ratelimit.Options{Store: rejectcache.New(rejectcache.Options{Store: memorybackend.New(memorybackend.Options{})})})
	l.Use(set)
	w.service = rls.NewService(l, rls.Hooks{})
	return w
}

// told is what a client learns from an answer.
type told struct {
	allowed          bool
	q, w, r, t, wait int64
}

func (w *world) call() told {
	req := descriptors.Request{Domain: []byte("edge"), Descriptors: []descriptors.Descriptor{{Entries: []descriptors.Entry{{Key: []byte("api_key"), Value: []byte("k")}}}}}
	var resp rls.Response
	if err := w.service.ShouldRateLimit(w.t.Context(), &req, &resp); err != nil {
		w.t.Fatal(err)
	}
	a := told{allowed: resp.Code == rls.OK}
	for _, h := range resp.Headers {
		switch h.Name {
		case "ratelimit-policy":
			a.q, a.w = w.param(h.Value, "q"), w.param(h.Value, "w")
		case "ratelimit":
			a.r, a.t = w.param(h.Value, "r"), w.param(h.Value, "t")
		case "retry-after":
			a.wait = w.param(append([]byte(";wait="), h.Value...), "wait")
		}
	}
	return a
}

// param reads one parameter of a field with one item. That the fields are well formed is tested where they are made.
func (w *world) param(field []byte, name string) int64 {
	_, rest, ok := strings.Cut(string(field), ";"+name+"=")
	if !ok {
		w.t.Fatalf("no %s in %s", name, field)
	}
	digits, _, _ := strings.Cut(rest, ";")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// admitted calls and fails the test if it is denied.
func (w *world) admitted(why string, args ...any) told {
	a := w.call()
	if !a.allowed {
		w.t.Fatalf("denied at %v: "+why, append([]any{w.now()}, args...)...)
	}
	return a
}

func (w *world) now() time.Duration { return time.Since(w.began) }

func (w *world) sleep(seconds int64) { time.Sleep(time.Duration(seconds) * time.Second) }

// pass lets less than most go by, in whole microseconds.
func pass(rng *rand.Rand, most time.Duration) {
	time.Sleep(time.Duration(rng.Int64N(max(1, most.Microseconds()))) * time.Microsecond)
}

// randomPolicies are twenty of all kinds.
func randomPolicies(seed uint64) []string {
	rng := rand.New(rand.NewPCG(seed, 1))
	var list []string
	for i := range 20 {
		common := fmt.Sprintf("  - {id: p%d, key: [apiKey], onStoreFailure: open, ", i)
		if i%3 == 2 {
			window := []string{"1s", "1500ms", "10s", "60s", "90s", "5m", "7m", "1h"}[rng.IntN(8)]
			list = append(list, common+fmt.Sprintf("algorithm: sliding-log, limit: %d, window: %s}\n", 1+rng.IntN(150), window))
			continue
		}
		unit := []string{"Second", "Minute", "Minute", "Hour"}[rng.IntN(4)]
		refill := []string{strconv.Itoa(1 + rng.IntN(300)), strconv.FormatFloat(0.1+rng.Float64()*100, 'f', 2, 64)}[rng.IntN(2)]
		list = append(list, common+fmt.Sprintf("algorithm: token-bucket, capacity: %d, refillPer%s: %s}\n", 1+rng.IntN(150), unit, refill))
	}
	return list
}

// The one a day needs 40,320 s for 119 tokens, which a rate rounded to nearest misses by 1e-14 of a token.
const exactFill = "  - {id: exact, key: [apiKey], onStoreFailure: open, algorithm: token-bucket, capacity: 119, refillPerDay: 255}\n"

func TestBurstAtTheExactSecondOfRefill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, exactFill)
		for range 3 {
			var a told
			for i := range 119 {
				a = w.admitted("call %d", i+1)
			}
			w.sleep(a.w)
		}
	})
}

// everyPolicy runs a client alone on its key against each of the random policies.
func everyPolicy(t *testing.T, client func(w *world, rng *rand.Rand)) {
	seeds := uint64(1)
	if os.Getenv("ENVOY_RLS_LONG") != "" {
		seeds = 10
	}
	for seed := range seeds {
		for _, text := range randomPolicies(seed) {
			t.Run(text, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { client(newWorld(t, text), rand.New(rand.NewPCG(seed, 2))) })
			})
		}
	}
}

// TestClientThatReadsRateLimit sends at most r calls in t, spread at random, then looks again.
func TestClientThatReadsRateLimit(t *testing.T) {
	everyPolicy(t, func(w *world, rng *rand.Rand) {
		for w.now() < day {
			a := w.admitted("after t")
			until := w.now() + time.Duration(a.t)*time.Second
			for range a.r {
				if rng.IntN(3) == 0 {
					pass(rng, (until-w.now())/4)
				}
				w.admitted("within r=%d t=%d", a.r, a.t)
			}
			time.Sleep(until - w.now())
		}
	})
}

// TestClientThatReadsEveryRateLimit obeys the newest answer only: it calls on while r is positive, else waits t.
func TestClientThatReadsEveryRateLimit(t *testing.T) {
	everyPolicy(t, func(w *world, rng *rand.Rand) {
		for w.now() < day {
			a := w.admitted("after t")
			if a.r == 0 {
				w.sleep(a.t)
			} else if rng.IntN(4) == 0 {
				pass(rng, 2*time.Second)
			}
		}
	})
}

// TestClientThatReadsThePolicy sends a burst of q at the start of each w.
func TestClientThatReadsThePolicy(t *testing.T) {
	everyPolicy(t, func(w *world, _ *rand.Rand) {
		a := w.admitted("first call")
		for sent := int64(1); w.now() < day; sent = 0 {
			for ; sent < a.q; sent++ {
				w.admitted("call %d of q=%d", sent+1, a.q)
			}
			w.sleep(a.w)
		}
	})
}

// TestClientThatWaits calls until it is denied, waits Retry-After, and is never denied twice in a row.
func TestClientThatWaits(t *testing.T) {
	everyPolicy(t, func(w *world, rng *rand.Rand) {
		for w.now() < day {
			a := w.call()
			if a.allowed {
				pass(rng, time.Millisecond)
				continue
			}
			require.Positive(w.t, a.wait)
			require.GreaterOrEqual(w.t, a.wait, a.t)
			w.sleep(a.wait)
			w.admitted("after Retry-After: %d", a.wait)
		}
	})
}

// TestClientThatAsksMeanwhile calls again and again instead of waiting, so that most of its denials never reach the store. It is admitted as
// soon as any of them told it, or sooner.
func TestClientThatAsksMeanwhile(t *testing.T) {
	everyPolicy(t, func(w *world, rng *rand.Rand) {
		for w.now() < day {
			a := w.call()
			until := w.now() + time.Duration(a.wait)*time.Second
			for range 20 {
				if pass(rng, (until-w.now())/4); a.allowed {
					break
				}
				a = w.call()
				if !a.allowed {
					until = min(until, w.now()+time.Duration(a.wait)*time.Second)
				}
			}
			if !a.allowed {
				time.Sleep(until - w.now())
				w.admitted("after the shortest time that it was told")
			}
		}
	})
}
