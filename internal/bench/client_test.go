package bench

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// foreign is a server of Envoy's generated types, as anybody's could be: it denies every second value of a key.
type foreign struct {
	rls.UnimplementedRateLimitServiceServer
}

func (foreign) ShouldRateLimit(_ context.Context, r *rls.RateLimitRequest) (*rls.RateLimitResponse, error) {
	value := r.Descriptors[0].Entries[0].Value
	switch value {
	case "fail":
		return nil, status.Error(codes.Internal, "no")
	case "1":
		return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OVER_LIMIT, RawBody: []byte("denied")}, nil
	}
	return &rls.RateLimitResponse{OverallCode: rls.RateLimitResponse_OK, Statuses: []*rls.RateLimitResponse_DescriptorStatus{{Code: rls.RateLimitResponse_OK}}}, nil
}

func serve(t *testing.T, register func(*grpc.Server)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer()
	register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() { s.Stop(); require.NoError(t, <-served) })
	return l.Addr().String()
}

func TestAnyServerCanBeCalled(t *testing.T) {
	addr := serve(t, func(s *grpc.Server) { rls.RegisterRateLimitServiceServer(s, foreign{}) })
	c, err := Dial(t.Context(), Target{Addr: addr, Connections: 3})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	s, err := parse("keys: {count: 4, draw: sequence}\ncalls: [{descriptors: [{a: '{key%2}'}]}]")
	require.NoError(t, err)
	r, err := Load{Workers: 4, Rate: 2000, Open: true, Duration: 200 * time.Millisecond}.Run(t.Context(), c, s.Make("", 1))
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	require.EqualValues(t, 400, r.Total())
	require.EqualValues(t, 200, r.Denied)
	require.Positive(t, r.Latency.At(0.5))

	s, err = parse("calls: [{descriptors: [{a: fail}]}]")
	require.NoError(t, err)
	r, err = Load{Workers: 2, Duration: time.Minute, Calls: 5}.Run(t.Context(), c, s.Make("", 1))
	require.NoError(t, err)
	require.Equal(t, map[string]int64{"Internal": 5}, r.Errors)
}

func TestDialFails(t *testing.T) {
	addr := serve(t, func(*grpc.Server) {})
	_, err := Dial(t.Context(), Target{Addr: addr, Connections: 1})
	require.ErrorContains(t, err, "unknown service")

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = Dial(ctx, Target{Addr: addr, Connections: 1, TLS: &tls.Config{MinVersion: tls.VersionTLS13}})
	require.Error(t, err)
}

func TestVerdictOf(t *testing.T) {
	bytesOf := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		require.NoError(t, err)
		return b
	}
	tests := map[string]struct {
		reply []byte
		want  Verdict
		fails bool
	}{
		"empty":        {nil, Allowed, false},
		"unknown":      {bytesOf(&rls.RateLimitResponse{}), Allowed, false},
		"ok":           {bytesOf(&rls.RateLimitResponse{OverallCode: 1}), Allowed, false},
		"over limit":   {bytesOf(&rls.RateLimitResponse{OverallCode: 2, RawBody: []byte("x")}), Denied, false},
		"last wins":    {[]byte{8, 2, 8, 1}, Allowed, false},
		"other first":  {append(bytesOf(&rls.RateLimitResponse{RawBody: []byte("x")}), 8, 2), Denied, false},
		"cut off":      {[]byte{8}, 0, true},
		"cut off code": {[]byte{8, 0x80}, 0, true},
		"garbage":      {[]byte{0xff, 0xff}, 0, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := VerdictOf(test.reply)
			require.Equal(t, test.fails, err != nil, "%v", err)
			require.Equal(t, test.want, got)
		})
	}
}
