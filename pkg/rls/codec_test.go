package rls_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors/descriptorstest"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

const method = "/" + rls.ServiceName + "/ShouldRateLimit"

// handlerFunc is a handler made of a function.
type handlerFunc func(context.Context, *descriptors.Request, *rls.Response) error

func (f handlerFunc) ShouldRateLimit(ctx context.Context, req *descriptors.Request, resp *rls.Response) error {
	return f(ctx, req, resp)
}

// echo answers with the request as text, in the body, so that a client can see what arrived.
func echo(_ context.Context, req *descriptors.Request, resp *rls.Response) error {
	resp.Code = rls.OK
	for range req.Descriptors {
		resp.Statuses = append(resp.Statuses, rls.Status{Code: rls.OK})
	}
	resp.Body = []byte(descriptorstest.Text(req))
	return nil
}

// serve runs a server with the package's own options until the test ends, and gives a connection to it.
func serve(t testing.TB, h rls.Handler, extra ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	s := grpc.NewServer(append(rls.ServerOptions(), extra...)...)
	rls.Register(s, h)
	checks := health.NewServer()
	checks.SetServingStatus(rls.ServiceName, healthpb.HealthCheckResponse_SERVING)
	healthpb.RegisterHealthServer(s, checks)
	reflection.Register(s)
	l := bufconn.Listen(1 << 20)
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) }) // it always ends with an error, when the server stops
	cc, err := grpc.NewClient("passthrough:///bufconn", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, cc.Close())
		s.Stop()
		served.Wait()
	})
	return cc
}

// bytesCodec sends and receives messages as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func callRaw(ctx context.Context, cc *grpc.ClientConn, data []byte, opts ...grpc.CallOption) (*envoyrls.RateLimitResponse, error) {
	var out []byte
	if err := cc.Invoke(ctx, method, data, &out, append(opts, grpc.ForceCodecV2(bytesCodec{}))...); err != nil {
		return nil, err
	}
	var m envoyrls.RateLimitResponse
	return &m, proto.Unmarshal(out, &m)
}

func TestCallsArriveWhole(t *testing.T) {
	cc := serve(t, handlerFunc(echo))
	large := descriptorstest.Ordinary()
	large.Descriptors[0].Entries[1].Value = strings.Repeat("k", 59<<10)
	huge := descriptorstest.Ordinary()
	for range 50 {
		huge.Descriptors = append(huge.Descriptors, descriptorstest.Descriptor("key", strings.Repeat("v", 2<<10)))
	}
	tests := map[string]*envoyrls.RateLimitRequest{
		"empty":           {},
		"ordinary":        descriptorstest.Ordinary(),
		"59 kB value":     large,
		"100 kB request":  huge,
		"100 descriptors": descriptorstest.Many(100, 2),
	}
	for name, m := range tests {
		for _, opts := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)}} {
			t.Run(fmt.Sprint(name, len(opts)), func(t *testing.T) {
				for range 3 { // a call's memory is used again
					resp, err := envoyrls.NewRateLimitServiceClient(cc).ShouldRateLimit(t.Context(), m, opts...)
					require.NoError(t, err)
					require.Equal(t, envoyrls.RateLimitResponse_OK, resp.OverallCode)
					require.Len(t, resp.Statuses, min(len(m.Descriptors), descriptors.MaxDescriptors))
					require.Equal(t, descriptorstest.Official(m), string(resp.RawBody))
				}
			})
		}
	}
}

func TestCallOf15MB(t *testing.T) {
	value := strings.Repeat("k", 15<<20)
	cc := serve(t, handlerFunc(func(_ context.Context, req *descriptors.Request, resp *rls.Response) error {
		resp.Code = rls.OK
		if string(req.Descriptors[0].Entries[0].Value) != value {
			resp.Code = rls.OverLimit
		}
		return nil
	}))
	m := &envoyrls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{descriptorstest.Descriptor("api_key", value)}}
	resp, err := envoyrls.NewRateLimitServiceClient(cc).ShouldRateLimit(t.Context(), m)
	require.NoError(t, err)
	require.Equal(t, envoyrls.RateLimitResponse_OK, resp.OverallCode, "the value arrives whole")
}

func TestCallsWithAnyBytes(t *testing.T) {
	cc := serve(t, handlerFunc(echo))
	for _, value := range []string{"\xff\xfe", "\xff\xfd", "\xef\xbf\xbd", "\x00", "a\nb"} {
		entry := descriptorstest.Raw{}.Bytes(1, []byte("api_key")).Bytes(2, []byte(value))
		resp, err := callRaw(t.Context(), cc, descriptorstest.Raw{}.Bytes(1, []byte("edge")).Bytes(2, descriptorstest.Raw{}.Bytes(1, entry)))
		require.NoError(t, err)
		require.Contains(t, string(resp.RawBody), fmt.Sprintf("%q", value))
	}
}

func TestCallsThatFail(t *testing.T) {
	refuse := errors.New("refused")
	cc := serve(t, handlerFunc(func(ctx context.Context, req *descriptors.Request, resp *rls.Response) error {
		if string(req.Domain) == "refuse" {
			return status.Error(codes.InvalidArgument, refuse.Error())
		}
		return echo(ctx, req, resp)
	}))
	for range 3 {
		_, err := callRaw(t.Context(), cc, []byte{0x80})
		require.Equal(t, codes.Internal, status.Code(err), "a broken message: %v", err)
		_, err = callRaw(t.Context(), cc, descriptorstest.Raw{}.Bytes(1, []byte("refuse")))
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		resp, err := callRaw(t.Context(), cc, descriptorstest.Encoded(t, descriptorstest.Ordinary()))
		require.NoError(t, err)
		require.Equal(t, descriptorstest.Official(descriptorstest.Ordinary()), string(resp.RawBody), "nothing is left of failed calls")
	}
}

func TestInterceptorsSeeTheCall(t *testing.T) {
	var seen []string
	cc := serve(t, handlerFunc(echo), grpc.UnaryInterceptor(
		func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if r, ok := req.(*descriptors.Request); ok {
				seen = append(seen, info.FullMethod+" "+string(r.Domain))
			}
			return next(ctx, req)
		}))
	_, err := callRaw(t.Context(), cc, descriptorstest.Encoded(t, descriptorstest.Ordinary()))
	require.NoError(t, err)
	require.Equal(t, []string{method + " edge"}, seen)
}

func TestHealthBesideTheService(t *testing.T) {
	cc := serve(t, handlerFunc(echo))
	for _, service := range []string{"", rls.ServiceName} {
		resp, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{Service: service})
		require.NoError(t, err)
		require.Equal(t, healthpb.HealthCheckResponse_SERVING, resp.Status)
	}
	_, err := healthpb.NewHealthClient(cc).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "other"})
	require.Equal(t, codes.NotFound, status.Code(err))
}

func TestReflectionKnowsTheService(t *testing.T) {
	stream, err := reflectionpb.NewServerReflectionClient(serve(t, handlerFunc(echo))).ServerReflectionInfo(t.Context())
	require.NoError(t, err)
	ask := func(req *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		require.NoError(t, stream.Send(req))
		resp, err := stream.Recv()
		require.NoError(t, err)
		return resp
	}
	var names []string
	list := &reflectionpb.ServerReflectionRequest_ListServices{}
	for _, s := range ask(&reflectionpb.ServerReflectionRequest{MessageRequest: list}).GetListServicesResponse().Service {
		names = append(names, s.Name)
	}
	require.Contains(t, names, rls.ServiceName)
	symbol := &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: rls.ServiceName}
	files := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: symbol}).GetFileDescriptorResponse().GetFileDescriptorProto()
	require.NotEmpty(t, files)
	var file descriptorpb.FileDescriptorProto
	require.NoError(t, proto.Unmarshal(files[0], &file))
	require.Equal(t, "envoy/service/ratelimit/v3/rls.proto", file.GetName())
	require.Equal(t, "RateLimitService", file.Service[0].GetName())
	require.NoError(t, stream.CloseSend())
}
