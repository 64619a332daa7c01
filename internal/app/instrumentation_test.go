package app_test

import (
	"context"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// mostInstrumentation is what all instrumentation may cost each decision.
const mostInstrumentation = 400 * time.Nanosecond

// watchedPolicies never run out for plan free, and are always out for logins.
const watchedPolicies = `
domain: edge
policies:
  - {id: edge-ip, key: [ip], algorithm: token-bucket, capacity: 1000000000000, refillPerSecond: 1000000000, onStoreFailure: open}
  - {id: free, match: {plan: free}, key: [apiKey], hashTag: tenant, onMissingKey: deny, algorithm: token-bucket, capacity: 1000000000000, refillPerSecond: 1000000000, onStoreFailure: local}
  - {id: tenant, key: [tenant], algorithm: token-bucket, capacity: 1000000000000, refillPerSecond: 1000000000, onStoreFailure: open}
  - {id: login, match: {route: "POST /auth/login"}, key: [ip, username], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}
  - {id: login-per-ip, match: {route: "POST /auth/login"}, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}
`

// bareAndWatched make decisions from the bytes of a call to those of its answer, with a store in memory: once with all that the service watches
// them with, once with nothing.
func bareAndWatched(t testing.TB) (bare, watched *rls.Service) {
	t.Helper()
	opts, _ := options(t, watchedPolicies)
	opts.Log = slog.New(slog.NewTextHandler(io.Discard, nil)) // at the level of a service
	a, err := app.New(opts)
	require.NoError(t, err)
	bare, watched, err = app.BareAndWatched(t.Context(), a)
	require.NoError(t, err)
	return bare, watched
}

// requests are one for each way through the instrumentation.
var requests = map[string][]*ratelimitv3.RateLimitDescriptor_Entry{
	"allowed":   {{Key: "plan", Value: "free"}, {Key: "api_key", Value: "k1"}, {Key: "tenant", Value: "acme"}, {Key: "remote_address", Value: "203.0.113.7"}},
	"denied":    {{Key: "route", Value: "POST /auth/login"}, {Key: "remote_address", Value: "203.0.113.8"}, {Key: "username", Value: "alice"}},
	"unmatched": {{Key: "nobody", Value: "knows"}},
}

// caller makes the same request again and again.
type caller struct {
	wire []byte
	req  descriptors.Request
	resp rls.Response
	out  []byte
}

// newCaller makes one whose request s answers as its name says from now on.
func newCaller(t testing.TB, name string, s rls.Handler) *caller {
	t.Helper()
	wire, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "edge", Descriptors: []*ratelimitv3.RateLimitDescriptor{{Entries: requests[name]}}})
	require.NoError(t, err)
	c := &caller{wire: wire}
	for range 3 { // the first login is let in, the second one fills the rejection cache
		c.call(t.Context(), s)
	}
	require.Equal(t, name == "denied", c.resp.Code == rls.OverLimit)
	return c
}

func (c *caller) call(ctx context.Context, s rls.Handler) {
	if err := c.req.Unmarshal(c.wire); err != nil {
		panic(err)
	}
	c.resp.Reset()
	if err := s.ShouldRateLimit(ctx, &c.req, &c.resp); err != nil {
		panic(err)
	}
	c.out = c.resp.Append(c.out[:0])
}

var redisCall = &redisbackend.Call{Node: "10.0.0.1:6379", Took: time.Millisecond, Merged: true}

func BenchmarkInstrumentation(b *testing.B) {
	bare, watched := bareAndWatched(b)
	for name := range requests {
		for form, s := range map[string]*rls.Service{"off": bare, "on": watched} {
			b.Run(name+"/"+form, func(b *testing.B) {
				c := newCaller(b, name, s)
				b.ReportAllocs()
				for b.Loop() {
					c.call(b.Context(), s)
				}
			})
		}
	}
	b.Run("store call", func(b *testing.B) {
		called := app.OnRedisCall()
		b.ReportAllocs()
		for b.Loop() {
			called(redisCall)
		}
	})
}

func TestInstrumentationAllocatesNothing(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	_, watched := bareAndWatched(t)
	for name := range requests {
		t.Run(name, func(t *testing.T) {
			c := newCaller(t, name, watched)
			require.Zero(t, testing.AllocsPerRun(1000, func() { c.call(t.Context(), watched) }))
			require.Equal(t, name == "denied", c.resp.Code == rls.OverLimit)
		})
	}
	called := app.OnRedisCall()
	require.Zero(t, testing.AllocsPerRun(1000, func() { called(redisCall) }))
}

// TestInstrumentationIsCheap compares the fastest of many short runs: what else the machine does can only make a run slower.
func TestInstrumentationIsCheap(t *testing.T) {
	if raced || !long() {
		t.Skip("long form, without the race detector")
	}
	const calls, runs = 2000, 100
	bare, watched := bareAndWatched(t)
	for name := range requests {
		t.Run(name, func(t *testing.T) {
			c := newCaller(t, name, watched)
			fastest := func(s *rls.Service) time.Duration {
				began := time.Now()
				for range calls {
					c.call(t.Context(), s)
				}
				return time.Since(began) / calls
			}
			off, on := make([]time.Duration, runs), make([]time.Duration, runs)
			for i := range runs {
				off[i], on[i] = fastest(bare), fastest(watched)
			}
			cost := slices.Min(on) - slices.Min(off)
			t.Logf("off %v, on %v: %v a decision", slices.Min(off), slices.Min(on), cost)
			require.LessOrEqual(t, cost, mostInstrumentation)
		})
	}
}
