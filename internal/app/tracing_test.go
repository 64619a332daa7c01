package app_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/metadata"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/internal/tracing/tracingtest"
)

const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// traced makes a call that its caller traces.
func (i *instance) traced(attrs ...string) {
	i.t.Helper()
	ctx := metadata.AppendToOutgoingContext(i.t.Context(), "traceparent", traceparent)
	_, err := i.rls.ShouldRateLimit(ctx, request("edge", attrs...))
	require.NoError(i.t, err)
}

// named picks the spans of one name.
func named(name string) func(tracingtest.Span) bool {
	return func(s tracingtest.Span) bool { return s.Name == name }
}

const (
	callSpan  = "envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	storeSpan = "Acquire"
)

func TestTraces(t *testing.T) {
	redis := redistest.StartStandalone(t)
	collector := tracingtest.Start(t)
	opts, log := options(t, "policies:\n  - {id: one, key: [apiKey], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}\n"+
		"  - {id: two, key: [tenant], onMissingKey: skip, algorithm: sliding-log, limit: 5, window: 1h, mode: shadow, onStoreFailure: open}\n")
	opts.Store, opts.Redis = "redis", app.RedisOptions{URLs: []string{redis.URL()}, Mode: "standalone"}
	opts.StoreTimeout = 5 * time.Second // a busy machine
	opts.Trace = app.TraceOptions{Endpoint: collector.URL}
	i := launch(t, opts, log)
	i.call("api_key", "secret-0", "tenant", "secret-1") // nobody asked for a trace
	i.traced("api_key", "secret-2", "tenant", "secret-3")
	i.traced("api_key", "secret-2", "tenant", "secret-3") // denied by Redis
	i.traced("api_key", "secret-2", "tenant", "secret-3") // denied by the cache

	calls := collector.Wait(t, 3, named(callSpan))
	stores := collector.Wait(t, 3, named(storeSpan))
	require.Len(t, calls, 3)
	for n, want := range []struct{ outcome, source string }{{"allowed", "store"}, {"denied", "store"}, {"denied", "cache"}} {
		require.Equal(t, "4bf92f3577b34da6a3ce929d0e0e4736", calls[n].TraceID)
		require.Equal(t, "00f067aa0ba902b7", calls[n].Parent)
		require.Equal(t, "v-test", calls[n].Resource["service.version"])
		require.Equal(t, want.outcome, calls[n].Attributes["ratelimit.outcome"])
		require.Equal(t, []string{"one", "two"}, calls[n].Attributes["ratelimit.policies"])
		require.Equal(t, want.source, calls[n].Attributes["ratelimit.sources"].([]string)[0])
		require.Equal(t, int64(1), calls[n].Attributes["ratelimit.cost"])

		require.Equal(t, calls[n].ID, stores[n].Parent)
		require.Equal(t, []string{redis.Addr()}, stores[n].Attributes["ratelimit.nodes"])
		require.Equal(t, "redis", stores[n].Attributes["db.system"])
		require.LessOrEqual(t, stores[n].Took, calls[n].Took)
	}
	require.Equal(t, []string{"one"}, calls[1].Attributes["ratelimit.denied_by"])
	require.NotContains(t, fmt.Sprint(calls, stores), "secret")
	require.NotContains(t, fmt.Sprint(calls, stores), "ak_")
	require.Eventually(t, func() bool { return i.metric(`envoy_rls_trace_spans_total{result="exported"}`) == "6" }, 10*time.Second, 5*time.Millisecond)
}

// TestACollectorThatHangs neither slows a decision nor keeps the service from ending.
func TestACollectorThatHangs(t *testing.T) {
	collector := tracingtest.Start(t)
	collector.Hang()
	opts, log := options(t, perIP)
	opts.Trace = app.TraceOptions{Endpoint: collector.URL, Ratio: 1}
	i := newInstance(t, opts, log)
	require.NoError(t, i.Start(t.Context()))
	i.connect()
	i.call("ip", "203.0.113.7")
	collector.Asked(t)
	i.call("ip", "203.0.113.7")
	stopped := make(chan error, 1)
	go func() { stopped <- i.Stop(context.Background()) }()
	select {
	case err := <-stopped:
		require.NoError(t, err)
	case <-time.After(4 * time.Second): // an export may take 5 s
		t.Fatal("the service waits for the collector")
	}
}

// TestTracingOff: it is not in the way at all.
func TestTracingOff(t *testing.T) {
	opts, _ := options(t, perIP)
	a, err := app.New(opts)
	require.NoError(t, err)
	require.True(t, app.Untraced(a))

	opts.Trace = app.TraceOptions{Endpoint: "http://127.0.0.1:1"}
	a, err = app.New(opts)
	require.NoError(t, err)
	require.False(t, app.Untraced(a))

	opts.Trace.Endpoint = "127.0.0.1:1"
	_, err = app.New(opts)
	require.ErrorContains(t, err, "otlp-endpoint")
}

// BenchmarkTracing is a decision without tracing, with a trace that nobody wants, and with one that goes to a collector.
func BenchmarkTracing(b *testing.B) {
	for name, form := range map[string]struct {
		on   bool
		flag string
	}{"off": {}, "not sampled": {true, "-00"}, "sampled": {true, "-01"}} {
		b.Run(name, func(b *testing.B) {
			opts, _ := options(b, watchedPolicies)
			if form.on {
				opts.Trace.Endpoint = tracingtest.Start(b).URL
			}
			h, stop := app.Answering(b.Context(), opts)
			defer stop()
			ctx := metadata.NewIncomingContext(b.Context(), metadata.Pairs("traceparent", traceparent[:len(traceparent)-3]+form.flag))
			c := newCaller(b, "allowed", h)
			b.ReportAllocs()
			for b.Loop() {
				c.call(ctx, h)
			}
		})
	}
}
