package tracing

import (
	"context"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// maxListed is how many policies, and how many nodes, a span names at most.
const maxListed = 32

// OnDecision says in the span of the call, if there is one, how it was decided.
func (t *Tracer) OnDecision(ctx context.Context, d *ratelimit.Decision) {
	span := trace.SpanFromContext(ctx)
	if !span.IsRecording() {
		return
	}
	outcome := "allowed"
	if !d.Allowed {
		outcome = "denied"
	}
	var policies, sources, denied []string
	cost := uint64(0)
	for i := range d.Checks {
		c := &d.Checks[i]
		cost = max(cost, c.Cost)
		if len(policies) == maxListed {
			continue
		}
		policies = append(policies, c.Policy.ID)
		sources = append(sources, sourceOf(c.Result.Source))
		if c.Denied() && !c.Shadow() {
			denied = append(denied, c.Policy.ID)
		}
	}
	span.SetAttributes(
		attribute.String("ratelimit.outcome", outcome),
		attribute.StringSlice("ratelimit.policies", policies),
		attribute.StringSlice("ratelimit.sources", sources), // in the same order
		attribute.StringSlice("ratelimit.denied_by", denied),
		attribute.Int64("ratelimit.cost", int64(min(cost, math.MaxInt64))),
	)
}

func sourceOf(s ratelimit.Source) string {
	if s == 0 {
		return "none" // not asked, since another one denied
	}
	return s.String()
}

// StoreOptions say what is known of a store.
type StoreOptions struct {
	// Store is what is asked.
	Store ratelimit.Store
	// System is what it is, as OpenTelemetry calls it: "redis". Empty: it is in the process.
	System string
	// Node, if set, gives the node that a key lives on; empty: unknown.
	Node func(policy.Key) string
	// Reason, if set, gives a word for why a bucket could not be decided.
	Reason func(error) string
}

// Store is a store whose calls have spans, in the span of their context.
func (t *Tracer) Store(o StoreOptions) ratelimit.Store { return &store{o, t.tracer} }

type store struct {
	StoreOptions
	tracer trace.Tracer
}

// Acquire implements ratelimit.Store.
func (s *store) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return s.Store.Acquire(ctx, buckets, results)
	}
	began := time.Now()
	results = s.Store.Acquire(ctx, buckets, results)
	_, span := s.tracer.Start(ctx, "Acquire", trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began))
	defer span.End()
	s.describe(span, buckets, results)
	return results
}

func (s *store) describe(span trace.Span, buckets []ratelimit.Bucket, results []ratelimit.Result) {
	span.SetAttributes(attribute.Int("ratelimit.buckets", len(buckets)))
	if s.System != "" {
		span.SetAttributes(attribute.String("db.system", s.System))
	}
	var nodes, sources []string
	for i := range buckets {
		if s.Node != nil {
			nodes = addNew(nodes, s.Node(buckets[i].Key))
		}
		if err := results[i].Err; err == nil {
			sources = addNew(sources, sourceOf(results[i].Source))
		} else if s.Reason != nil {
			span.SetStatus(codes.Error, s.Reason(err))
		}
	}
	if len(nodes) > 0 {
		span.SetAttributes(attribute.StringSlice("ratelimit.nodes", nodes))
	}
	span.SetAttributes(attribute.StringSlice("ratelimit.sources", sources))
}

func addNew(list []string, s string) []string {
	if s == "" || len(list) == maxListed || slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
