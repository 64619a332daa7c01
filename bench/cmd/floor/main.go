// Command floor answers rate limit calls without deciding anything: a default grpc-go server with the official types that allows
// everything and returns two header fields. What a real server costs more is its own, what it costs less it has saved.
package main

import (
	"context"
	"flag"
	"log"
	"net"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
)

type floor struct {
	rls.UnimplementedRateLimitServiceServer
}

func (floor) ShouldRateLimit(_ context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
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

func main() {
	addr := flag.String("grpc-addr", "127.0.0.1:8081", "where to answer")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	s := grpc.NewServer()
	rls.RegisterRateLimitServiceServer(s, floor{})
	log.Fatal(s.Serve(l))
}
