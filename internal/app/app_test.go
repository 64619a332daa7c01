package app_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

const (
	perIP    = "domain: edge\npolicies:\n  - {id: per-ip, key: [ip], algorithm: token-bucket, capacity: 3, refillPerDay: 3, onStoreFailure: open}\n"
	hostname = "203.0.113.7"
)

func TestServes(t *testing.T) {
	i := start(t, perIP)
	first := i.call("remote_address", hostname)
	require.Equal(t, rlsv3.RateLimitResponse_OK, first.GetOverallCode())
	require.Equal(t, `"per-ip";q=3;w=86400`, header(first, "RateLimit-Policy"))
	require.Equal(t, 2, i.admitted(5, "remote_address", hostname))
	last := i.call("remote_address", hostname)
	require.Equal(t, rlsv3.RateLimitResponse_OVER_LIMIT, last.GetOverallCode())
	require.NotEmpty(t, header(last, "Retry-After"))
	require.Contains(t, string(last.GetRawBody()), "RATE_LIMITED")

	require.Equal(t, "3", i.metric(`envoy_rls_decisions_total{outcome="allowed",policy="per-ip",source="store"}`))
	require.Equal(t, "1", i.metric(`envoy_rls_decisions_total{outcome="denied",policy="per-ip",source="store"}`))
	require.Equal(t, "3", i.metric(`envoy_rls_decisions_total{outcome="denied",policy="per-ip",source="cache"}`))
	require.Equal(t, "3", i.metric("envoy_rls_rejection_cache_denials_total"))
	require.Equal(t, "1", i.metric("envoy_rls_buckets"))
	require.Contains(t, i.log.String(), "level=DEBUG msg=denied policy=per-ip source=store")
}

func TestPages(t *testing.T) {
	i := start(t, perIP)
	code, body := i.page("/readyz")
	require.Equal(t, 200, code, body)
	_, policies := i.page("/api/v1/policies")
	require.Contains(t, policies, `"id": "per-ip"`)

	got := i.status()
	require.True(t, got.Ready)
	require.Equal(t, "v-test", got.Version)
	require.Equal(t, i.policies, got.Policies.Path)
	require.Equal(t, 1, got.Policies.Count)
	require.Equal(t, []string{"edge"}, got.Policies.Domains)
	require.Empty(t, got.Policies.Error)
	require.Equal(t, "memory", got.Store.Kind)
	require.Equal(t, 1000, got.Store.MaxBuckets)

	code, _ = get(t, "http://"+i.DebugAddr().String()+"/debug/pprof/goroutine")
	require.Equal(t, 200, code)
}

func TestHealthAndReflection(t *testing.T) {
	i := start(t, perIP)
	health := healthpb.NewHealthClient(i.conn)
	for _, service := range []string{"", "envoy.service.ratelimit.v3.RateLimitService"} {
		got, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, got.GetStatus(), service)
	}
	_, err := health.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"})
	require.Equal(t, codes.NotFound, status.Code(err))

	stream, err := reflectionpb.NewServerReflectionClient(i.conn).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(&reflectionpb.ServerReflectionRequest{
		MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: rls.ServiceName},
	}))
	answer, err := stream.Recv()
	require.NoError(t, err)
	require.NotEmpty(t, answer.GetFileDescriptorResponse().GetFileDescriptorProto(), answer)
	require.NoError(t, stream.CloseSend())
}

// TestField_OddCalls: an empty domain and no descriptors are refused; an unknown domain and a descriptor that no policy
// wants are let through and counted.
func TestField_OddCalls(t *testing.T) {
	i := start(t, perIP)
	for _, odd := range []*rlsv3.RateLimitRequest{request(""), {Domain: "edge"}} {
		_, err := i.rls.ShouldRateLimit(t.Context(), odd)
		require.Equal(t, codes.InvalidArgument, status.Code(err))
	}
	for range 20 {
		got, err := i.rls.ShouldRateLimit(t.Context(), request("unheard-of", "remote_address", hostname))
		require.NoError(t, err)
		require.Equal(t, rlsv3.RateLimitResponse_OK, got.GetOverallCode())
	}
	require.Equal(t, rlsv3.RateLimitResponse_OK, i.call("colour", "red").GetOverallCode())
	require.Equal(t, "2", i.metric(`envoy_rls_grpc_errors_total{code="InvalidArgument"}`))
	require.Equal(t, "20", i.metric("envoy_rls_unknown_domain_requests_total"))
	require.Equal(t, "1", i.metric("envoy_rls_unmatched_descriptors_total"))
	require.Equal(t, "0", i.metric("envoy_rls_buckets"), "nothing was charged")
	require.Contains(t, i.log.String(), "domain=unheard-of")
}

// TestOperatorsFaultsAreCounted: too many descriptors, and limits of their own, are counted and never a gRPC error.
func TestOperatorsFaultsAreCounted(t *testing.T) {
	i := start(t, perIP)
	big := request("edge", "ip", hostname)
	for len(big.GetDescriptors()) < 100 {
		big.Descriptors = append(big.Descriptors, request("edge", "colour", "red").GetDescriptors()...)
	}
	own := request("edge", "ip", hostname)
	own.Descriptors[0].Limit = &ratelimitv3.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: 1}
	for _, odd := range []*rlsv3.RateLimitRequest{big, own} {
		got, err := i.rls.ShouldRateLimit(t.Context(), odd)
		require.NoError(t, err)
		require.Equal(t, rlsv3.RateLimitResponse_OK, got.GetOverallCode())
	}
	require.Equal(t, "1", i.metric("envoy_rls_truncated_requests_total"))
	require.Equal(t, "1", i.metric("envoy_rls_ignored_descriptor_limits_total"))
	require.Contains(t, i.log.String(), "more descriptors or entries")
	require.Contains(t, i.log.String(), "are not used")
}

func TestNewFindsAllFaults(t *testing.T) {
	_, err := app.New(app.Options{Store: "disk", MaxBuckets: 3, DrainDelay: -time.Second})
	require.Error(t, err)
	for _, name := range []string{"policies: ", "store: ", "max-buckets: ", "drain-delay: "} {
		require.ErrorContains(t, err, name)
	}
}

func TestStartNeedsPolicies(t *testing.T) {
	opts, log := options(t, "polices: []\n")
	i := newInstance(t, opts, log)
	var faults policy.Faults
	require.ErrorAs(t, i.Start(t.Context()), &faults)
	require.Nil(t, i.GRPCAddr(), "nothing was opened")
}

func TestStartNeedsItsPorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close() //nolint:errcheck // the test is over
	tests := map[string]func(*app.Options){
		"grpc-addr":  func(o *app.Options) { o.GRPCAddr = taken.Addr().String() },
		"admin-addr": func(o *app.Options) { o.AdminAddr = taken.Addr().String() },
		"debug-addr": func(o *app.Options) { o.DebugAddr = taken.Addr().String() },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			opts, log := options(t, perIP)
			change(&opts)
			i := newInstance(t, opts, log)
			require.ErrorContains(t, i.Start(t.Context()), name+": ")
			if i.AdminAddr() != nil {
				_, err := net.Dial("tcp", i.AdminAddr().String())
				require.Error(t, err, "what was opened is closed")
			}
		})
	}
}

func TestNoDebugAddress(t *testing.T) {
	opts, log := options(t, perIP)
	opts.DebugAddr = ""
	i := newInstance(t, opts, log)
	require.NoError(t, i.Start(t.Context()))
	require.Nil(t, i.DebugAddr())
	require.NoError(t, i.Stop(context.Background()))
}

func TestHostileDomainIsLoggedShort(t *testing.T) {
	i := start(t, perIP)
	_, err := i.rls.ShouldRateLimit(t.Context(), request(strings.Repeat("x\n", 10_000), "a", "b"))
	require.NoError(t, err)
	require.Less(t, len(i.log.String()), 2000)
	require.NotContains(t, i.log.String(), "x\nx")
}
