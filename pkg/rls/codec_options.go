package rls

import (
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
)

// ServerOptions gives the options of a server for [Register]: the codec, and what was measured to cost least.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(Codec()),
		grpc.NumStreamWorkers(8),
		grpc.SharedWriteBuffer(true),
		grpc.MaxRecvMsgSize(16 << 20),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionAge:      30 * time.Minute, // grpc-go spreads it by 10 % either way
			MaxConnectionAgeGrace: time.Minute,
			Time:                  30 * time.Second,
			Timeout:               10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	}
}
