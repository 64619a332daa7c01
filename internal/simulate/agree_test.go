package simulate_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// service decides as serve does, at times that it is told.
type service struct {
	now  time.Time
	rls  *rls.Service
	last string // what the limiter said last
}

func newService(set *policy.Set) *service {
	s := &service{}
	store := memorybackend.New(memorybackend.Options{Now: func() int64 { return s.now.UnixMicro() }})
	set = set.WithClock(func() time.Time { return s.now })
	told := func(d *ratelimit.Decision) { s.last = describe(s.now, d) }
	s.rls = rls.NewService(ratelimit.New(ratelimit.Options{Store: store, Policies: set, OnDecision: told}), rls.Hooks{})
	return s
}

// decide asks for what a line says, as Envoy would: one descriptor, or one for each entry.
func (s *service) decide(t *testing.T, at time.Time, entries [][2]string, cost uint32, apart bool) (allowed bool, told string) {
	t.Helper()
	s.now = at
	req := descriptors.Request{Domain: []byte("edge"), HitsAddend: cost}
	for i, e := range entries {
		if i == 0 || apart {
			req.Descriptors = append(req.Descriptors, descriptors.Descriptor{})
		}
		d := &req.Descriptors[len(req.Descriptors)-1]
		d.Entries = append(d.Entries, descriptors.Entry{Key: []byte(e[0]), Value: []byte(e[1])})
	}
	var resp rls.Response
	require.NoError(t, s.rls.ShouldRateLimit(t.Context(), &req, &resp))
	return resp.Code == rls.OK, s.last
}

// describe tells all that every policy said.
func describe(at time.Time, d *ratelimit.Decision) string {
	var b strings.Builder
	fmt.Fprint(&b, at.UTC(), d.Allowed)
	for i := range d.Checks {
		c := &d.Checks[i]
		fmt.Fprint(&b, " ", c.Policy.ID, c.Numbers.Index, c.Op, c.Cost, c.Missing, c.Result.Outcome, c.Result.Source, c.Result.Remaining, c.Result.Wait)
	}
	for _, skip := range d.Skipped {
		fmt.Fprint(&b, " without ", skip.Policy.ID, skip.Missing)
	}
	return b.String()
}

// pick draws a value; one in ten is something that no policy was written for.
func pick(rng *rand.Rand, values ...string) string {
	if rng.IntN(10) == 0 {
		return []string{"", "\u00e9", "a:b{c}", strings.Repeat("x", 300), "\x00\n"}[rng.IntN(5)]
	}
	return values[rng.IntN(len(values))]
}

// drawn are the entries of a request, each left out now and then.
func drawn(rng *rand.Rand) (entries [][2]string) {
	for _, e := range [][2]string{
		{"method", pick(rng, "GET", "POST", "PUT")},
		{"path", pick(rng, "/auth/login", "//auth/./login?x=1", "/search", "/orders", "/exports/daily")},
		{"remote_address", pick(rng, "203.0.113.7:4711", "203.0.113.7", "2001:db8::1", "unknown")},
		{"plan", pick(rng, "free", "pro", "pro-annual")},
		{"x-api-key", pick(rng, "secret1", "secret2", "k3")},
		{"x-customer", pick(rng, "acme", "demo")},
		{"username", pick(rng, "Alice", " alice ", "bob")},
	} {
		if rng.IntN(6) > 0 {
			entries = append(entries, e)
		}
	}
	if len(entries) == 0 {
		entries = append(entries, [2]string{"plan", "free"})
	}
	return entries
}

// On 10,000 random requests under the shipped policies, simulate decides as the service does, one by one.
func TestAgreesWithServe(t *testing.T) {
	set, err := policy.Load("../../config/policies.yaml")
	require.NoError(t, err)
	seed := rand.Uint64()
	t.Log("seed", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	serve := newService(set)
	at := time.Date(2030, 1, 31, 17, 50, 0, 0, time.UTC) // within the log, an override ends
	var lines strings.Builder
	var want []string
	denied := 0
	for range 10_000 {
		at = at.Add(time.Duration(rng.IntN(200)) * time.Millisecond)
		line := map[string]any{"start_time": at.Format(time.RFC3339Nano)}
		entries := drawn(rng)
		for _, e := range entries {
			line[e[0]] = e[1]
		}
		cost := uint32(0)
		if rng.IntN(4) == 0 {
			cost = rng.Uint32N(30) + 1
			line["cost"] = cost
		}
		text, err := json.Marshal(line)
		require.NoError(t, err)
		lines.Write(append(text, '\n'))
		allowed, told := serve.decide(t, at, entries, cost, rng.IntN(2) == 0)
		want = append(want, told)
		if !allowed {
			denied++
		}
	}
	require.Greater(t, denied, 1000)
	require.Less(t, denied, 9000)

	var got []string
	r := run(t, lines.String(), simulate.Options{
		Policies: set, Domain: "edge", Fields: []simulate.Field{{Name: "cost", Source: "cost"}},
		OnDecision: func(at time.Time, d *ratelimit.Decision) { got = append(got, describe(at, d)) },
	})
	require.Equal(t, want, got)
	require.EqualValues(t, denied, r.Denied)
	require.Zero(t, r.Lines.Bad)
}
