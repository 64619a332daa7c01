package grpclimit_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/envoy-rls/envoy-rls/pkg/grpclimit"
	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
)

// clientOf gives the client behind proxies, who note it in the metadata as they do in a header.
func clientOf(proxies httplimit.Proxies) func(*grpclimit.RPC) (string, bool) {
	return func(rpc *grpclimit.RPC) (string, bool) {
		r := &http.Request{Header: http.Header{
			"X-Forwarded-For": metadata.ValueFromIncomingContext(rpc.Context, "x-forwarded-for"),
		}}
		if p, ok := peer.FromContext(rpc.Context); ok && p.Addr != nil {
			r.RemoteAddr = p.Addr.String()
		}
		return proxies.Client(r), true
	}
}

// Behind an Envoy that writes x-forwarded-for, the attribute ip is grpclimit.Func("ip", clientOf(proxies)).
func ExampleFunc_behindProxies() {
	client := clientOf(httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}})

	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("x-forwarded-for", "1.1.1.1, 203.0.113.7"))
	for _, from := range []string{"10.1.0.9:40000", "198.51.100.1:40000"} { // the second is no proxy
		addr := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from))
		fmt.Println(client(&grpclimit.RPC{Context: peer.NewContext(ctx, &peer.Peer{Addr: addr})}))
	}
	// Output:
	// 203.0.113.7 true
	// 198.51.100.1 true
}
