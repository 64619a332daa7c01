package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/internal/tracing"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// TraceOptions say where to tell how single requests were decided. The zero value: nowhere.
type TraceOptions struct {
	// Endpoint is a collector of OpenTelemetry: http://HOST:PORT, or https:// for TLS. Empty: none.
	Endpoint string
	// Ratio is the share of requests, from 0 to 1, that are traced where Envoy does not say whether to.
	Ratio float64
}

// openTracing makes the tracer, if there is to be one. Without it nothing of what follows is in the way of a decision.
func (a *App) openTracing(counting *metrics.Options) error {
	if a.opts.Trace.Endpoint == "" {
		return nil
	}
	failures := a.sparing()
	tracer, err := tracing.New(tracing.Options{
		Endpoint: a.opts.Trace.Endpoint, Ratio: a.opts.Trace.Ratio, Version: a.opts.Version, Instance: instanceName(),
		OnFailure: func(err error) { failures.log(slog.LevelWarn, "the collector did not take spans", "error", err) },
	})
	if err != nil {
		return err
	}
	a.tracer = tracer
	counting.Tracing = func() metrics.Tracing {
		s := tracer.Stats()
		return metrics.Tracing{Exported: s.Exported, Failed: s.Failed, Dropped: s.Dropped}
	}
	return nil
}

func (a *App) tracedStore() ratelimit.Store {
	if a.tracer == nil {
		return a.store
	}
	o := tracing.StoreOptions{Store: a.store}
	if a.shared != nil {
		o.System = storeRedis
		o.Node = func(key policy.Key) string { return a.shared.Redis.Node(key.Bytes()) }
		o.Reason = func(err error) string { return string(redisbackend.ReasonOf(err)) }
	}
	return a.tracer.Store(o)
}

func (a *App) tracedHooks() rls.Hooks {
	h := a.hooks()
	if a.tracer != nil {
		h.OnDecision = a.tracer.OnDecision
	}
	return h
}

// handler answers calls.
func (a *App) handler() rls.Handler {
	if a.tracer == nil {
		return a.service
	}
	return tracedHandler{a.service, a.tracer}
}

// tracedHandler makes a span of each call.
type tracedHandler struct {
	rls.Handler
	tracer *tracing.Tracer
}

// ShouldRateLimit implements rls.Handler.
func (h tracedHandler) ShouldRateLimit(ctx context.Context, req *descriptors.Request, resp *rls.Response) error {
	ctx, span := h.tracer.Begin(ctx, rls.ServiceName, "ShouldRateLimit")
	err := h.Handler.ShouldRateLimit(ctx, req, resp)
	tracing.End(span, err)
	return err
}

// lastSpans is how long the end of the service waits for the collector.
const lastSpans = 500 * time.Millisecond

func (a *App) startTracing() error {
	if a.tracer == nil {
		return nil
	}
	if err := a.tracer.Start(context.Background()); err != nil {
		return err
	}
	a.closers.push(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, lastSpans)
		defer cancel()
		a.tracer.Close(ctx)
		return nil
	})
	return nil
}
