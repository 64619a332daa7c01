package rls

import (
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// What ServerOptions sets; docs/adr/0005-grpc-options.md has the measurements.
const (
	// streamWorkers handle the calls in flight without growing a new goroutine's stack for each. More calls than that at a
	// time get a goroutine of their own.
	streamWorkers = 128
	// maxRequest is the largest request in bytes. Envoy sends what its clients send, and would let a request through whose
	// check is refused for its size: so it is far above what Envoy accepts from a client.
	maxRequest = 16 << 20
)

// ServerOptions gives the options of a server for [Register]: the codec, and what was measured to cost least. The number of
// calls in flight is left unbounded, since above a bound Envoy would let requests through.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(Codec()),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			// Connections are renewed so that Envoys spread over instances that came up later. grpc-go varies the age by 10 %
			// either way, so that they don't do so all at once.
			MaxConnectionAge:      30 * time.Minute,
			MaxConnectionAgeGrace: time.Minute,
			Time:                  30 * time.Second,
			Timeout:               10 * time.Second,
		}),
		// Envoy's own keepalive may be as fast as it likes: closing its connection would let requests through.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Millisecond, PermitWithoutStream: true}),
	}
}
