package grpclimit_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/envoy-rls/envoy-rls/pkg/grpclimit"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// lab is a stock gRPC server with the interceptors, and a stock client. The store's clock stands still until told otherwise.
type lab struct {
	testpb.UnimplementedTestServiceServer

	t       *testing.T
	client  testpb.TestServiceClient
	micro   atomic.Int64
	options grpclimit.Options
	unary   func(context.Context) error // what the handler does
	duplex  func(testpb.TestService_FullDuplexCallServer) error

	mu        sync.Mutex
	decisions []ratelimit.Decision
}

// start serves with change made to the options; service is the client's service config.
func start(t *testing.T, policies, service string, change func(*lab)) *lab {
	t.Helper()
	l := &lab{t: t}
	l.micro.Store(1e12)
	l.options.Limiter = ratelimit.New(ratelimit.Options{
		Store:    memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10, Now: l.micro.Load}),
		Policies: parse(t, policies),
	})
	l.options.Attributes = []grpclimit.Attribute{grpclimit.Route(), grpclimit.Metadata("user", "x-user")}
	l.unary = func(context.Context) error { return nil }
	l.options.OnDecision = l.note
	if change != nil {
		change(l)
	}
	limit, err := grpclimit.New(l.options)
	require.NoError(t, err)

	server := grpc.NewServer(grpc.ChainUnaryInterceptor(limit.Unary), grpc.ChainStreamInterceptor(limit.Stream))
	testpb.RegisterTestServiceServer(server, l)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	conn, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultServiceConfig(service))
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		serving.Wait()
	})
	l.client = testpb.NewTestServiceClient(conn)
	return l
}

func parse(t *testing.T, text string) *policy.Set {
	t.Helper()
	f, err := policy.Parse("policies.yaml", []byte(text))
	require.NoError(t, err)
	s, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	return s
}

// note keeps decisions. The clock then moves on by as much as a denial says.
func (l *lab) note(_ *grpclimit.RPC, d *ratelimit.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.decisions = append(l.decisions, d.Clone())
	if wait, _ := d.Wait(); !d.Allowed {
		l.micro.Add(wait.Microseconds())
	}
}

// told are the decisions so far.
func (l *lab) told() (allowed []bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range l.decisions {
		allowed = append(allowed, d.Allowed)
	}
	return allowed
}

// EmptyCall implements the service.
func (l *lab) EmptyCall(ctx context.Context, _ *testpb.Empty) (*testpb.Empty, error) {
	return &testpb.Empty{}, l.unary(ctx)
}

// FullDuplexCall implements the service.
func (l *lab) FullDuplexCall(s testpb.TestService_FullDuplexCallServer) error { return l.duplex(s) }

// told is what a client has learnt by metadata.
type told struct{ header, trailer metadata.MD }

// call makes a unary call for alice.
func (l *lab) call() (told, error) {
	var got told
	ctx := metadata.AppendToOutgoingContext(l.t.Context(), "x-user", "alice")
	_, err := l.client.EmptyCall(ctx, &testpb.Empty{}, grpc.Header(&got.header), grpc.Trailer(&got.trailer))
	return got, err
}

// stream opens a stream for alice and says nothing more, then reads to its end.
func (l *lab) stream() (told, int, error) {
	ctx := metadata.AppendToOutgoingContext(l.t.Context(), "x-user", "alice")
	s, err := l.client.FullDuplexCall(ctx)
	require.NoError(l.t, err)
	require.NoError(l.t, s.CloseSend())
	n := 0
	for {
		if _, err = s.Recv(); err != nil {
			break
		}
		n++
	}
	header, _ := s.Header()
	return told{header, s.Trailer()}, n, err
}
