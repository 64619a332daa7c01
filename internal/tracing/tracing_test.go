package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc/metadata"

	"github.com/envoy-rls/envoy-rls/internal/tracing"
	"github.com/envoy-rls/envoy-rls/internal/tracing/tracingtest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a tracer until the test ends.
func start(t *testing.T, o tracing.Options) *tracing.Tracer {
	t.Helper()
	tracer, err := tracing.New(o)
	require.NoError(t, err)
	require.NoError(t, tracer.Start(t.Context()))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		tracer.Close(ctx)
	})
	return tracer
}

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	spanID  = "00f067aa0ba902b7"
	sampled = "00-" + traceID + "-" + spanID + "-01"
	ignored = "00-" + traceID + "-" + spanID + "-00"
)

func incoming(pairs ...string) context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(pairs...))
}

func all(tracingtest.Span) bool { return true }

// call makes the span of one call.
func call(ctx context.Context, t *tracing.Tracer, err error) {
	_, span := t.Begin(ctx, "some.Service", "Method")
	tracing.End(span, err)
}

func TestSpanOfACall(t *testing.T) {
	c := tracingtest.Start(t)
	tracer := start(t, tracing.Options{Endpoint: c.URL, Version: "v1", Instance: "one"})
	call(incoming("traceparent", sampled, "tracestate", "a=b"), tracer, errors.New("odd"))
	span := c.Wait(t, 1, all)[0]
	require.Equal(t, "some.Service/Method", span.Name)
	require.Equal(t, traceID, span.TraceID)
	require.Equal(t, spanID, span.Parent)
	require.Equal(t, "odd", span.Error)
	require.Equal(t, map[string]any{"rpc.system": "grpc", "rpc.service": "some.Service", "rpc.method": "Method"}, span.Attributes)
	require.Equal(t, "envoy-rls", span.Resource["service.name"])
	require.Equal(t, "v1", span.Resource["service.version"])
	require.Equal(t, "one", span.Resource["service.instance.id"])
	require.Eventually(t, func() bool { return tracer.Stats() == tracing.Stats{Exported: 1} }, 10*time.Second, time.Millisecond)
}

// TestWhoIsTraced: the caller's word counts, else the ratio; what cannot be read is no word.
func TestWhoIsTraced(t *testing.T) {
	tests := map[string]struct {
		ratio float64
		ctx   context.Context
		spans int // of 2
	}{
		"the caller wants":          {0, incoming("traceparent", sampled), 2},
		"the caller does not want":  {1, incoming("traceparent", ignored), 0},
		"the caller says nothing":   {0, incoming(), 0},
		"nobody says":               {1, context.Background(), 2},
		"garbage":                   {0, incoming("traceparent", "00-zz-\x00-01"), 0},
		"two words":                 {0, incoming("traceparent", sampled, "traceparent", sampled), 0},
		"a word of a megabyte":      {0, incoming("traceparent", sampled+strings.Repeat("x", 1<<20)), 0},
		"a state of a megabyte":     {0, incoming("traceparent", sampled, "tracestate", "a="+strings.Repeat("x", 1<<20)), 2},
		"garbage beside a good one": {0, incoming("traceparent", sampled, "tracestate", "\xff\xfe,,=;="), 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := tracingtest.Start(t)
			tracer := start(t, tracing.Options{Endpoint: c.URL, Ratio: test.ratio})
			for range 2 {
				call(test.ctx, tracer, nil)
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			tracer.Close(ctx) // sends all there is
			require.Equal(t, tracing.Stats{Exported: uint64(test.spans)}, tracer.Stats())
			require.Len(t, c.Wait(t, test.spans, all), test.spans)
		})
	}
}

func TestOptions(t *testing.T) {
	for endpoint, fault := range map[string]string{
		"":                            "want http://HOST:PORT",
		"collector:4317":              "want http://HOST:PORT",
		"http://collector":            "want http://HOST:PORT",
		"http://collector:4317/v1":    "want http://HOST:PORT",
		"ftp://collector:4317":        "want http://HOST:PORT",
		"http://a:s3cret@host:4317":   "do not belong there",
		"http://a:s3cret@ho st:4317":  "not a URL",
		"http://host:4317?key=s3cret": "want http://HOST:PORT",
	} {
		_, err := tracing.New(tracing.Options{Endpoint: endpoint})
		require.ErrorContains(t, err, fault, endpoint)
		require.NotContains(t, err.Error(), "s3cret")
	}
	for _, ratio := range []float64{-0.1, 1.1, math.NaN(), math.Inf(1)} {
		_, err := tracing.New(tracing.Options{Endpoint: "http://host:4317", Ratio: ratio})
		require.ErrorContains(t, err, "trace-ratio", ratio)
	}
	for _, endpoint := range []string{"http://host:4317", "https://[::1]:4317/"} {
		_, err := tracing.New(tracing.Options{Endpoint: endpoint, Ratio: 1})
		require.NoError(t, err)
	}
}

// TestACollectorThatHangs: spans are dropped and counted, nobody waits, and the end comes in time.
func TestACollectorThatHangs(t *testing.T) {
	c := tracingtest.Start(t)
	c.Hang()
	failed := make(chan error, 10)
	tracer := start(t, tracing.Options{Endpoint: c.URL, Ratio: 1, OnFailure: func(err error) { failed <- err }})
	const batch, queued, calls = 512, 2048, 4000
	for range batch {
		call(context.Background(), tracer, nil)
	}
	c.Asked(t)
	for range calls {
		call(context.Background(), tracer, nil)
	}
	require.Equal(t, tracing.Stats{Dropped: calls - queued}, tracer.Stats())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tracer.Close(ctx)
	require.Equal(t, tracing.Stats{Dropped: calls - queued, Failed: batch + queued}, tracer.Stats())
	require.Error(t, <-failed)
	tracer.Close(ctx) // nothing to do
}

// TestACollectorThatIsNotThere: what was to be sent meanwhile is lost, and counted.
func TestACollectorThatIsNotThere(t *testing.T) {
	failed := make(chan error, 10)
	tracer := start(t, tracing.Options{Endpoint: "http://127.0.0.1:1", Ratio: 1, OnFailure: func(err error) { failed <- err }})
	call(context.Background(), tracer, nil)
	require.Error(t, <-failed)
	require.Equal(t, tracing.Stats{Failed: 1}, tracer.Stats())
}

// TestNeverStarted: it may be closed.
func TestNeverStarted(t *testing.T) {
	tracer, err := tracing.New(tracing.Options{Endpoint: "http://127.0.0.1:1", Ratio: 1})
	require.NoError(t, err)
	call(context.Background(), tracer, nil)
	tracer.Close(context.Background())
}

// answers is a store that gives fixed results.
type answers []ratelimit.Result

func (a answers) Acquire(_ context.Context, _ []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	return append(results, a...)
}

func bucket(n int) ratelimit.Bucket {
	return ratelimit.Bucket{Key: policy.NewKey(policy.Part{Name: "tenant", Value: fmt.Sprintf("secret%d", n)}, "id"), Op: ratelimit.Take, Cost: 1}
}

func TestSpanOfAStoreCall(t *testing.T) {
	c := tracingtest.Start(t)
	tracer := start(t, tracing.Options{Endpoint: c.URL})
	store := tracer.Store(tracing.StoreOptions{
		Store: answers{
			{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore},
			{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore},
			{Outcome: ratelimit.Denied, Source: ratelimit.FromLocal},
			{Err: errors.New("refused by 10.0.0.9")},
		},
		System: "redis",
		Node: func(k policy.Key) string {
			if strings.Contains(k.String(), "secret3") {
				return ""
			}
			return "10.0.0.1:6379"
		},
		Reason: func(error) string { return "dial" },
	})
	buckets := []ratelimit.Bucket{bucket(0), bucket(1), bucket(2), bucket(3)}
	ctx, span := tracer.Begin(incoming("traceparent", sampled), "some.Service", "Method")
	results := store.Acquire(ctx, buckets, nil)
	tracing.End(span, nil)
	require.Len(t, results, 4)
	spans := c.Wait(t, 2, all)
	child, parent := spans[0], spans[1]
	require.Equal(t, parent.ID, child.Parent)
	require.Equal(t, "Acquire", child.Name)
	require.Equal(t, "dial", child.Error)
	require.Equal(t, map[string]any{
		"db.system": "redis", "ratelimit.buckets": int64(4), "ratelimit.nodes": []string{"10.0.0.1:6379"}, "ratelimit.sources": []string{"store", "local"},
	}, child.Attributes)
	require.NotContains(t, fmt.Sprint(spans), "secret", "no key leaves")

	require.Len(t, store.Acquire(context.Background(), buckets, nil), 4)
	ctx, span = tracer.Begin(incoming("traceparent", ignored), "some.Service", "Method")
	require.Len(t, store.Acquire(ctx, buckets, nil), 4)
	tracing.End(span, nil)
	closing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tracer.Close(closing)
	require.Equal(t, tracing.Stats{Exported: 2}, tracer.Stats())
}

// TestHowManyAreNamed: a span lists so many policies at most, and the cost of all.
func TestHowManyAreNamed(t *testing.T) {
	c := tracingtest.Start(t)
	tracer := start(t, tracing.Options{Endpoint: c.URL, Ratio: 1})
	d := &ratelimit.Decision{}
	for n := range 100 {
		d.Checks = append(d.Checks, ratelimit.Check{
			Policy: &policy.Policy{ID: fmt.Sprint("p", n)}, Cost: uint64(n), Result: ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromStore},
		})
	}
	d.Checks[1].Policy.Mode = policy.Shadow
	d.Checks[2].Result = ratelimit.Result{}
	d.Checks[99].Cost = math.MaxUint64
	ctx, span := tracer.Begin(context.Background(), "some.Service", "Method")
	tracer.OnDecision(ctx, d)
	tracing.End(span, nil)
	got := c.Wait(t, 1, all)[0].Attributes
	require.Len(t, got["ratelimit.policies"], 32)
	require.Equal(t, []string{"store", "store", "none", "store"}, got["ratelimit.sources"].([]string)[:4])
	require.Equal(t, []string{"p0", "p3", "p4"}, got["ratelimit.denied_by"].([]string)[:3])
	require.Equal(t, int64(math.MaxInt64), got["ratelimit.cost"])
	require.Equal(t, "denied", got["ratelimit.outcome"])
	tracer.OnDecision(context.Background(), d) // no span: nothing
}
