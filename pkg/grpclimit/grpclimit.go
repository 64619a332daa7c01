// Package grpclimit is interceptors for gRPC servers that limit calls by what a gateway in front does not know: the user whom the
// call's credentials prove, the tenant, what the request costs.
//
// An [Interceptor] turns a call into attributes and has a [ratelimit.Limiter] decide:
//
//	limit, err := grpclimit.New(grpclimit.Options{
//		Limiter:    limiter,
//		Attributes: []grpclimit.Attribute{grpclimit.Route(), grpclimit.Func("user", userOf)},
//	})
//	…
//	server := grpc.NewServer(grpc.ChainUnaryInterceptor(authenticate, limit.Unary), grpc.ChainStreamInterceptor(authenticateStream, limit.Stream))
//
// A stream is charged once, when it opens; its messages are not. A service that wants to charge them calls the limiter itself.
//
// # What clients are told
//
// A denied call ends with RESOURCE_EXHAUSTED, with the details QuotaFailure (the policies that denied, as far as clients may know them) and
// RetryInfo (when to come back), or with UNAVAILABLE and RetryInfo, if only policies with onStoreFailure: closed denied while the store was
// down. The metadata grpc-retry-pushback-ms makes clients that retry by their service config wait as long; -1 keeps those from retrying
// that can never succeed.
//
// Every answer carries the metadata ratelimit and ratelimit-policy, which have the syntax of the HTTP fields of that name: in the
// header if the call succeeds. If it fails before anything was sent, denials included, they are in the trailer, since a gRPC client
// retries only what came without a header.
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

// Options are what an Interceptor is made of.
type Options struct {
	// Limiter decides. Required.
	Limiter *ratelimit.Limiter
	// Domain chooses the policy files: those with this domain, and those without any.
	Domain string
	// Attributes are what the policies match and count by, each name once.
	Attributes []Attribute
	// Cost, if set, says how many units a call costs under each policy. 0 asks whether there is any left and spends nothing.
	// Default: 1.
	Cost func(*RPC) uint64
	// Skip, if set, says which calls pass without being decided: those of the health service, say.
	Skip func(*RPC) bool
	// OnDecision, if set, is told every decision before the call goes on. It must not keep the decision.
	OnDecision func(*RPC, *ratelimit.Decision)
}

// RPC is a call that is to be decided.
type RPC struct {
	// Context is the call's, with its metadata, its peer and what interceptors in front have put there.
	Context context.Context
	// Method is the full name, such as "/payments.v1.Payments/Create".
	Method string
	// Request is the message of a unary call, and nil for a stream.
	Request any
}

// Interceptor limits calls. It is safe for concurrent use.
type Interceptor struct {
	options  Options
	renderer rlheaders.Renderer
	answers  sync.Pool // of *rlheaders.Answer
}

// New makes an Interceptor. The error tells everything that is wrong with the options.
func New(o Options) (*Interceptor, error) {
	i := &Interceptor{options: o}
	i.answers.New = func() any { return new(rlheaders.Answer) }
	if i.options.OnDecision == nil {
		i.options.OnDecision = func(*RPC, *ratelimit.Decision) {}
	}
	var faults []error
	if o.Limiter == nil {
		faults = append(faults, errors.New("no limiter"))
	}
	seen := make(map[string]bool, len(o.Attributes))
	for _, a := range o.Attributes {
		if a.name == "" || a.value == nil {
			faults = append(faults, fmt.Errorf("attribute %q needs a name and a func", a.name))
		}
		if seen[a.name] {
			faults = append(faults, fmt.Errorf("attribute %q is given twice", a.name))
		}
		seen[a.name] = true
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("grpclimit: %w", err)
	}
	return i, nil
}

// Unary is a grpc.UnaryServerInterceptor.
func (i *Interceptor) Unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	rpc := &RPC{Context: ctx, Method: info.FullMethod, Request: req}
	if i.skips(rpc) {
		return handler(ctx, req)
	}
	v := i.decide(rpc)
	if v.err != nil {
		_ = grpc.SetTrailer(ctx, v.fields) // fails only outside of a server
		return nil, v.err
	}
	resp, err := handler(ctx, req)
	if err != nil || grpc.SetHeader(ctx, v.fields) != nil {
		_ = grpc.SetTrailer(ctx, v.fields)
	}
	return resp, err
}

// Stream is a grpc.StreamServerInterceptor.
func (i *Interceptor) Stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	rpc := &RPC{Context: ss.Context(), Method: info.FullMethod}
	if i.skips(rpc) {
		return handler(srv, ss)
	}
	v := i.decide(rpc)
	if v.err != nil {
		ss.SetTrailer(v.fields)
		return v.err
	}
	s := &stream{ServerStream: ss, fields: v.fields}
	err := handler(srv, s)
	s.end(err)
	return err
}

func (i *Interceptor) skips(rpc *RPC) bool { return i.options.Skip != nil && i.options.Skip(rpc) }

// verdict is what becomes of a call.
type verdict struct {
	err    error       // a status, if it is denied
	fields metadata.MD // what the client is told either way
}

func (i *Interceptor) decide(rpc *RPC) verdict {
	call := i.options.Limiter.Begin([]byte(i.options.Domain))
	defer call.Release()
	for n := range i.options.Attributes {
		a := &i.options.Attributes[n]
		if value, ok := a.value(rpc); ok {
			call.AddString(0, a.name, value)
		}
	}
	if i.options.Cost != nil {
		call.SetCost(i.options.Cost(rpc))
	}
	d := call.Check(rpc.Context)
	i.options.OnDecision(rpc, d)

	answer := i.answers.Get().(*rlheaders.Answer)
	defer i.answers.Put(answer)
	i.renderer.Render(d, answer)
	v := verdict{fields: make(metadata.MD, 3)}
	put(v.fields, "ratelimit-policy", answer.Policy)
	put(v.fields, "ratelimit", answer.RateLimit)
	switch {
	case !d.Allowed:
		v.deny(d)
	case d.Abandoned(rpc.Context): // nobody waits for the answer
		v.err = status.FromContextError(rpc.Context.Err()).Err()
	}
	return v
}

func put(md metadata.MD, key string, value []byte) {
	if len(value) > 0 {
		md[key] = []string{string(value)}
	}
}
