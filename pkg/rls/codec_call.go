package rls

import (
	"context"
	"sync"

	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// ServiceName is the service's full name, also under which its health is reported.
const ServiceName = "envoy.service.ratelimit.v3.RateLimitService"

// Handler answers rate limit calls. It is safe for concurrent use.
type Handler interface {
	// ShouldRateLimit answers req by filling resp, which is empty. Both, and all that resp points to, are read no more after
	// it returned and the answer was encoded; the handler keeps nothing of them. An error becomes the call's gRPC status, upon which
	// Envoy applies its own failure mode.
	ShouldRateLimit(ctx context.Context, req *descriptors.Request, resp *Response) error
}

// Register makes s serve the rate limit service with h. The server must have been made with [Codec], as [ServerOptions] does.
func Register(s *grpc.Server, h Handler) {
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: ServiceName,
		HandlerType: (*Handler)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "ShouldRateLimit", Handler: shouldRateLimit}},
		// The file with the service's definition, which the import registers and reflection looks up.
		Metadata: envoyrls.RateLimitService_ServiceDesc.Metadata,
	}, &service{Handler: h})
}

// service is a handler with the calls that wait to be used again.
type service struct {
	Handler
	calls sync.Pool
}

// wireSize is the initial capacity of a call's encoded answer, in bytes: above 1 KiB, since grpc-go does not give back smaller
// buffers.
const wireSize = 2 << 10

// maxKeptBuffer is the largest encoded answer, in bytes, whose buffer is kept for the next one.
const maxKeptBuffer = 64 << 10

// call is all that one call needs. It goes back to its service when grpc-go has written the answer out (or at once, if there is
// none), which it tells by giving back the buffer to the call, as to a pool of one.
type call struct {
	owner *service
	req   descriptors.Request
	resp  Response
	wire  []byte // the encoded answer
	out   [1]mem.Buffer
}

func (s *service) get() *call {
	if c, ok := s.calls.Get().(*call); ok {
		return c
	}
	return &call{owner: s, wire: make([]byte, 0, wireSize)}
}

func (s *service) put(c *call) {
	if cap(c.wire) > maxKeptBuffer {
		c.wire = make([]byte, 0, wireSize)
	}
	s.calls.Put(c)
}

// shouldRateLimit is the method's handler, in the form that grpc-go wants.
func shouldRateLimit(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	s := srv.(*service)
	c := s.get()
	if err := dec(&c.req); err != nil {
		s.put(c)
		return nil, err
	}
	if interceptor == nil {
		return s.answer(ctx, c)
	}
	info := &grpc.UnaryServerInfo{Server: srv, FullMethod: "/" + ServiceName + "/ShouldRateLimit"}
	return interceptor(ctx, &c.req, info, func(ctx context.Context, _ any) (any, error) { return s.answer(ctx, c) })
}

// answer calls the handler and encodes its answer at once, since what the answer points to may be gone later.
func (s *service) answer(ctx context.Context, c *call) (any, error) {
	c.resp.Reset()
	if err := s.ShouldRateLimit(ctx, &c.req, &c.resp); err != nil {
		s.put(c)
		return nil, err
	}
	c.wire = c.resp.Append(c.wire[:0])
	return c, nil
}

// marshal gives the encoded answer to grpc-go, which frees it once.
func (c *call) marshal() mem.BufferSlice {
	c.out[0] = mem.NewBuffer(&c.wire, c)
	return c.out[:]
}

// Put takes back the buffer, and with it the call. It makes a call a [mem.BufferPool].
func (c *call) Put(*[]byte) { c.owner.put(c) }

// Get is the other half of [mem.BufferPool]. A buffer that is given back is never asked for.
func (c *call) Get(n int) *[]byte {
	b := make([]byte, n)
	return &b
}
