package grpclimit_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/pkg/grpclimit"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// userOf is who calls. In real life an interceptor in front has checked a token, and put its subject into the context.
func userOf(rpc *grpclimit.RPC) (string, bool) {
	names := metadata.ValueFromIncomingContext(rpc.Context, "x-user")
	return fmt.Sprint(names), len(names) > 0
}

// A server whose users may call each method twice.
func Example() {
	file, err := policy.Parse("policies.yaml", []byte(`
policies:
  - id: calls
    match: {route: "POST /grpc.health.v1.Health/*"}
    key: [user, route]
    onMissingKey: deny
    algorithm: token-bucket
    capacity: 2
    refillPerDay: 2
    onStoreFailure: open
`))
	if err != nil {
		log.Fatal(err)
	}
	policies, err := policy.NewSet([]*policy.File{file})
	if err != nil {
		log.Fatal(err)
	}
	limiter := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{}), Policies: policies})

	limit, err := grpclimit.New(grpclimit.Options{
		Limiter:    limiter,
		Attributes: []grpclimit.Attribute{grpclimit.Route(), grpclimit.Func("user", userOf)},
	})
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer(
		grpc.ChainUnaryInterceptor(limit.Unary), // behind the one that checks who calls
		grpc.ChainStreamInterceptor(limit.Stream),
	)

	grpc_health_v1.RegisterHealthServer(server, health.NewServer())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()

	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	client := grpc_health_v1.NewHealthClient(conn)
	for _, user := range []string{"alice", "alice", "alice", "bob"} {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "x-user", user)
		_, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		fmt.Println(user, status.Code(err))
	}

	_ = conn.Close()
	server.Stop()
	<-served
	// Output:
	// alice OK
	// alice OK
	// alice ResourceExhausted
	// bob OK
}
