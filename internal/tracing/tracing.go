// Package tracing tells a collector of OpenTelemetry how single requests were decided, over OTLP/gRPC. It is the only package that knows
// OpenTelemetry. What is traced says which policies decided and how long the store took, never a key or a value that a client sent.
package tracing

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/metadata"
)

// Options say where spans go, and of which requests.
type Options struct {
	// Endpoint is the collector: http://HOST:PORT, or https:// for TLS. Required. Headers, certificates and a timeout come from OpenTelemetry's own
	// variables (OTEL_EXPORTER_OTLP_HEADERS and so on).
	Endpoint string
	// Ratio is the share of requests, from 0 to 1, that are traced where the caller does not say. Where it does, as Envoy does in the
	// traceparent, its word counts.
	Ratio float64
	// Version is that of the service, Instance what tells it from others.
	Version, Instance string
	// OnFailure, if set, is told why spans did not reach the collector, of each batch.
	OnFailure func(error)
}

// Tracer makes spans. Make one with New. Its methods are safe for concurrent use.
type Tracer struct {
	opts     Options
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	queue    *queue
}

// New makes a Tracer that keeps spans until Start. It connects to nothing. The error says which option is wrong.
func New(o Options) (*Tracer, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.OnFailure == nil {
		o.OnFailure = func(error) {}
	}
	about, err := resource.New(context.Background(),
		resource.WithAttributes(
			attribute.String("service.name", "envoy-rls"),
			attribute.String("service.version", o.Version),
			attribute.String("service.instance.id", o.Instance),
		),
		resource.WithFromEnv(), // wins
	)
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	t := &Tracer{opts: o, queue: newQueue(o.OnFailure)}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(o.Ratio))),
		sdktrace.WithSpanProcessor(t.queue),
	)
	t.tracer = t.provider.Tracer("github.com/envoy-rls/envoy-rls")
	return t, nil
}

func (o *Options) check() error {
	var faults []error
	u, err := url.Parse(o.Endpoint)
	switch {
	case err != nil:
		faults = append(faults, errors.New("otlp-endpoint: not a URL")) // the error would show it, with what secrets are in it
	case u.User != nil:
		faults = append(faults, errors.New("otlp-endpoint: user and password do not belong there; headers come from OTEL_EXPORTER_OTLP_HEADERS"))
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.Port() == "" || u.Path != "" && u.Path != "/" || u.RawQuery != "":
		faults = append(faults, errors.New("otlp-endpoint: want http://HOST:PORT, or https://HOST:PORT for TLS"))
	}
	if !(o.Ratio >= 0 && o.Ratio <= 1) {
		faults = append(faults, fmt.Errorf("trace-ratio: %v is not from 0 to 1", o.Ratio))
	}
	return errors.Join(faults...)
}

// exportTimeout bounds the sending of one batch. OTEL_EXPORTER_OTLP_TIMEOUT may make it shorter.
const exportTimeout = 5 * time.Second

// Start begins to send spans. A collector that is not there is no fault: spans are sent once it is, or dropped and counted.
func (t *Tracer) Start(ctx context.Context) error {
	otel.SetLogger(logr.Discard()) // it would show headers that are malformed, with the secrets in them
	exporter, err := otlptracegrpc.New(ctx,
		otlptracegrpc.WithEndpointURL(t.opts.Endpoint),
		otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}), // the next batch comes soon enough
	)
	if err != nil {
		return fmt.Errorf("otlp-endpoint: %w", err)
	}
	t.queue.start(exporter)
	return nil
}

// Close sends what is left and ends, when ctx does at the latest.
func (t *Tracer) Close(ctx context.Context) { t.queue.close(ctx) }

// Stats are the numbers of spans since the start.
type Stats struct {
	Exported uint64 // taken by the collector
	Failed   uint64 // sent, and not taken, or not known to be
	Dropped  uint64 // not sent: more came than could be
}

// Stats tells what became of spans.
func (t *Tracer) Stats() Stats {
	return Stats{t.queue.exported.Load(), t.queue.failed.Load(), t.queue.dropped.Load()}
}

// Begin makes the span of a call to method, in the trace that the metadata of the call names, and puts it into the context. End ends it.
func (t *Tracer) Begin(ctx context.Context, service, method string) (context.Context, trace.Span) {
	ctx = propagation.TraceContext{}.Extract(ctx, carrier{ctx})
	ctx, span := t.tracer.Start(ctx, service+"/"+method, trace.WithSpanKind(trace.SpanKindServer))
	if span.IsRecording() {
		span.SetAttributes(
			attribute.String("rpc.system", "grpc"), attribute.String("rpc.service", service), attribute.String("rpc.method", method),
		)
	}
	return ctx, span
}

// End ends the span of a call that was answered with err, or without.
func End(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error()) // texts of ours
	}
	span.End()
}

// carrier reads the metadata of a gRPC call.
type carrier struct{ ctx context.Context }

// maxState bounds the tracestate, which only goes to the collector: longer ones need not be kept, says W3C.
const maxState = 512

// Get implements propagation.TextMapCarrier.
func (c carrier) Get(key string) string {
	values := metadata.ValueFromIncomingContext(c.ctx, key)
	if len(values) != 1 || len(values[0]) > maxState {
		return ""
	}
	return values[0]
}

// Set implements propagation.TextMapCarrier.
func (carrier) Set(string, string) {}

// Keys implements propagation.TextMapCarrier.
func (carrier) Keys() []string { return nil }
