// Package floor is a rate limit server that decides nothing: what a benchmark compares a real one with.
package floor

import (
	"context"
	"net"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

// server allows everything.
type server struct {
	rls.UnimplementedRateLimitServiceServer
}

// ShouldRateLimit implements the service.
func (server) ShouldRateLimit(_ context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	out := &rls.RateLimitResponse{
		OverallCode: rls.RateLimitResponse_OK,
		ResponseHeadersToAdd: []*core.HeaderValue{
			{Key: "ratelimit-policy", Value: `"free";q=100;w=60`},
			{Key: "ratelimit", Value: `"free";r=73;t=12`},
		},
	}
	for range r.Descriptors {
		status := &rls.RateLimitResponse_DescriptorStatus{Code: rls.RateLimitResponse_OK, LimitRemaining: 73}
		out.Statuses = append(out.Statuses, status)
	}
	return out, nil
}

// Serve answers rate limit calls on l without deciding anything, until ctx is done: a grpc-go server as it comes, with Envoy's generated
// types, that allows everything and returns two header fields. What a real server costs more is its own, what it costs less it has saved.
func Serve(ctx context.Context, l net.Listener) error {
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, server{})
	stop := context.AfterFunc(ctx, s.Stop)
	defer stop()
	return s.Serve(l)
}
