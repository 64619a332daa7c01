// Package tracingtest is a collector of spans for tests.
package tracingtest

import (
	"context"
	"encoding/hex"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span is what a test wants to know of a span.
type Span struct {
	Name, TraceID, ID, Parent string // ids in hexadecimal; no parent: empty
	Attributes                map[string]any
	Resource                  map[string]any // of the program that made it
	Error                     string         // its status, if that is an error
	Took                      time.Duration
}

// Collector keeps what it is sent.
type Collector struct {
	collector.UnimplementedTraceServiceServer
	// URL is where it listens.
	URL string

	mu    sync.Mutex
	spans []Span
	more  chan struct{} // closed when there are more spans
	hangs bool
	asked chan struct{} // has a value when it is being called
}

// Start runs a collector until the test ends.
func Start(t testing.TB) *Collector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &Collector{URL: "http://" + listener.Addr().String(), more: make(chan struct{}), asked: make(chan struct{}, 1)}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	var done sync.WaitGroup
	done.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		done.Wait()
	})
	return c
}

// Hang makes the collector answer no more.
func (c *Collector) Hang() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hangs = true
}

// Asked waits until the collector is being called.
func (c *Collector) Asked(t testing.TB) {
	t.Helper()
	select {
	case <-c.asked:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing was sent")
	}
}

// Export implements the OTLP service.
func (c *Collector) Export(ctx context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	select {
	case c.asked <- struct{}{}:
	default:
	}
	c.mu.Lock()
	hangs := c.hangs
	c.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		about := values(resource.GetResource().GetAttributes())
		for _, scope := range resource.GetScopeSpans() {
			for _, s := range scope.GetSpans() {
				c.spans = append(c.spans, spanOf(s, about))
			}
		}
	}
	close(c.more)
	c.more = make(chan struct{})
	return &collector.ExportTraceServiceResponse{}, nil
}

// Wait gives the spans once there are as many that pass.
func (c *Collector) Wait(t testing.TB, n int, pass func(Span) bool) []Span {
	t.Helper()
	enough := time.After(30 * time.Second)
	for {
		c.mu.Lock()
		more := c.more
		var found []Span
		for _, s := range c.spans {
			if pass(s) {
				found = append(found, s)
			}
		}
		all := c.spans
		c.mu.Unlock()
		if len(found) >= n {
			return found
		}
		select {
		case <-more:
		case <-enough:
			t.Fatalf("only %d spans of %d came; all there are: %+v", len(found), n, all)
		}
	}
}

func spanOf(s *tracepb.Span, resource map[string]any) Span {
	span := Span{
		Name: s.GetName(), TraceID: hex.EncodeToString(s.GetTraceId()), ID: hex.EncodeToString(s.GetSpanId()), Parent: hex.EncodeToString(s.GetParentSpanId()),
		Attributes: values(s.GetAttributes()), Resource: resource,
		Took: time.Duration(s.GetEndTimeUnixNano() - s.GetStartTimeUnixNano()),
	}
	if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
		span.Error = s.GetStatus().GetMessage()
	}
	return span
}

func values(list []*common.KeyValue) map[string]any {
	m := map[string]any{}
	for _, kv := range list {
		m[kv.GetKey()] = value(kv.GetValue())
	}
	return m
}

func value(v *common.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_IntValue:
		return v.IntValue
	case *common.AnyValue_ArrayValue:
		list := []string{}
		for _, e := range v.ArrayValue.GetValues() {
			list = append(list, e.GetStringValue())
		}
		return list
	}
	return nil
}
