package grpclimit

import (
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

// Attribute is a fact about a call that policies can match and count by.
type Attribute struct {
	name  string
	value func(*RPC) (string, bool)
}

// Func is an attribute that value gives: the user that an interceptor in front has put into the call's context, a tenant from the
// request. Where value's second result is false the call lacks the attribute, and a policy that counts by it does what its onMissingKey
// says. Names are those of the policy files; some are made canonical before they count: ip, apiKey, route.
func Func(name string, value func(*RPC) (string, bool)) Attribute { return Attribute{name, value} }

// Metadata is an attribute that the client, or a gateway in front, sends as metadata with this key. Of several values the first
// counts. What a client can choose freely, it can change for each call: count by it only what is checked, such as an API key.
func Metadata(name, key string) Attribute {
	return Func(name, func(rpc *RPC) (string, bool) {
		if values := metadata.ValueFromIncomingContext(rpc.Context, key); len(values) > 0 {
			return values[0], true
		}
		return "", false
	})
}

// Route is the attribute route, as a gateway in front sees it, so that both can go by the same policies: "POST
// /payments.v1.Payments/Create".
func Route() Attribute {
	return Func("route", func(rpc *RPC) (string, bool) { return "POST " + rpc.Method, true })
}

// Peer is the attribute ip: the address at the other end of the connection. Behind a proxy that is the proxy's, for all clients
// the same: then use Func with what that proxy, and only it, says of its client, as in the example of Func.
func Peer() Attribute {
	return Func("ip", func(rpc *RPC) (string, bool) {
		if p, ok := peer.FromContext(rpc.Context); ok && p.Addr != nil {
			return p.Addr.String(), true
		}
		return "", false
	})
}
