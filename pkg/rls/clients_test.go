package rls_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// world is a service under one policy, with a clock that only the test moves.
type world struct {
	t       *testing.T
	now     int64 // microseconds
	service *rls.Service
	end     int64
}

func newWorld(t *testing.T, text string) *world {
	f, err := policy.Parse("policies.yaml", []byte("policies:\n"+text))
	require.NoError(t, err, text)
	set, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err, text)
	w := &world{t: t, now: 1, end: (10 * time.Minute).Microseconds()}
	l := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{Now: func() int64 { return w.now }})})
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
		w.t.Fatalf("denied at %d us: "+why, append([]any{w.now}, args...)...)
	}
	return a
}

func (w *world) sleep(seconds int64) { w.now += seconds * 1e6 }

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
	w := newWorld(t, exactFill)
	for range 3 {
		var a told
		for i := range 119 {
			a = w.admitted("call %d", i+1)
		}
		w.sleep(a.w)
	}
}

// everyPolicy runs a client alone on its key against each of the random policies.
func everyPolicy(t *testing.T, client func(w *world, rng *rand.Rand)) {
	seeds := uint64(1)
	if os.Getenv("ENVOY_RLS_LONG") != "" {
		seeds = 10
	}
	for seed := range seeds {
		for _, text := range randomPolicies(seed) {
			t.Run(text, func(t *testing.T) { client(newWorld(t, text), rand.New(rand.NewPCG(seed, 2))) })
		}
	}
}

// TestClientThatReadsRateLimit sends at most r calls in t, spread at random, then looks again.
func TestClientThatReadsRateLimit(t *testing.T) {
	everyPolicy(t, func(w *world, rng *rand.Rand) {
		for w.now < w.end {
			a := w.admitted("after t")
			until := w.now + a.t*1e6
			for range a.r {
				if rng.IntN(3) == 0 {
					w.now += rng.Int64N(max(1, (until-w.now)/4))
				}
				w.admitted("within r=%d t=%d", a.r, a.t)
			}
			w.now = until
		}
	})
}

// TestClientThatReadsEveryRateLimit obeys the newest answer only: it calls on while r is positive, else waits t.
func TestClientThatReadsEveryRateLimit(t *testing.T) {
	everyPolicy(t, func(w *world, rng *rand.Rand) {
		for w.now < w.end {
			a := w.admitted("after t")
			if a.r == 0 {
				w.sleep(a.t)
			} else if rng.IntN(4) == 0 {
				w.now += rng.Int64N(2e6)
			}
		}
	})
}

// TestClientThatReadsThePolicy sends a burst of q at the start of each w.
func TestClientThatReadsThePolicy(t *testing.T) {
	everyPolicy(t, func(w *world, _ *rand.Rand) {
		a := w.admitted("first call")
		for sent := int64(1); w.now < w.end; sent = 0 {
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
		for w.now < w.end {
			a := w.call()
			if a.allowed {
				w.now += rng.Int64N(1000)
				continue
			}
			require.Positive(w.t, a.wait)
			require.GreaterOrEqual(w.t, a.wait, a.t)
			w.sleep(a.wait)
			w.admitted("after Retry-After: %d", a.wait)
		}
	})
}
