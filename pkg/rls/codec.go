// Package rls is Envoy's rate limit service, envoy.service.ratelimit.v3.RateLimitService, over gRPC.
//
// [Service] answers calls with a limiter's decisions. Around it is a codec of our own, since the call costs far more than the
// decision and since Envoy sends strings that are not UTF-8: [Register] and [ServerOptions] make a server of both.
package rls

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that everything else goes through
	"google.golang.org/grpc/mem"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// Codec gives the codec that a server needs for a service made by [Register]: rate limit calls go through this package's own
// reader and writer, every other message (health, reflection) through the standard protobuf codec.
func Codec() encoding.CodecV2 { return codec{CodecV2: encoding.GetCodecV2("proto")} }

// codec embeds the standard codec: its name is also ours.
type codec struct{ encoding.CodecV2 }

// Marshal implements [encoding.CodecV2].
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if call, ok := v.(*call); ok {
		return call.marshal(), nil
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements [encoding.CodecV2].
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	req, ok := v.(*descriptors.Request)
	if !ok {
		return c.CodecV2.Unmarshal(data, v)
	}
	// One copy into the request's own buffer, since those of grpc-go go back to their pool when this returns.
	data.CopyTo(req.Alloc(data.Len()))
	return req.Parse()
}
