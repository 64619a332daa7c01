package bench

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Verdict is what a server says to a call.
type Verdict uint8

// The verdicts.
const (
	Allowed Verdict = iota + 1
	Denied
)

// Client calls a server over a number of connections. Make one with [Dial].
type Client struct {
	conns   []*grpc.ClientConn
	timeout time.Duration
}

// Target is a server to call.
type Target struct {
	Addr        string      // host:port
	TLS         *tls.Config // nil: plain text
	Connections int         // at least 1
	// Timeout is how long a call may take; after that it counts as an error. 0: 10 s.
	Timeout time.Duration
}

const (
	method         = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	dialTimeout    = 15 * time.Second
	defaultTimeout = 10 * time.Second
	// windowSize keeps the flow control of HTTP/2 out of what is measured.
	windowSize = 1 << 20
)

// Dial connects, and returns when the server answers on each connection. Any answer will do, but not that the method is unknown.
func Dial(ctx context.Context, t Target) (*Client, error) {
	c := &Client{timeout: t.Timeout}
	if c.timeout <= 0 {
		c.timeout = defaultTimeout
	}
	creds := insecure.NewCredentials()
	if t.TLS != nil {
		creds = credentials.NewTLS(t.TLS)
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	for range t.Connections {
		conn, err := grpc.NewClient(t.Addr, grpc.WithTransportCredentials(creds), grpc.WithInitialWindowSize(windowSize),
			grpc.WithInitialConnWindowSize(windowSize), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(raw{})), grpc.WithDisableRetry())
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
		c.conns = append(c.conns, conn)
		var reply []byte
		if err := conn.Invoke(ctx, method, hello(), &reply, grpc.WaitForReady(true)); err != nil {
			return nil, errors.Join(fmt.Errorf("call %s: %w", t.Addr, err), c.Close())
		}
	}
	return c, nil
}

// hello is a request that no policy is likely to be about.
func hello() []byte {
	s := Scenario{Domain: "envoy-rls-bench-hello", Calls: []Call{{Weight: 1, Descriptors: []Descriptor{{{Key: "hello"}}}}}, Keys: Keys{Count: 1}}
	return s.Make("", 0).maker(0).next()
}

// Close ends the connections.
func (c *Client) Close() error {
	var errs []error
	for _, conn := range c.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}

// Call makes a call over the worker's connection. It implements [Caller].
func (c *Client) Call(ctx context.Context, worker int, request []byte) (Verdict, error) {
	reply, err := c.Ask(ctx, worker, request)
	if err != nil {
		return 0, err
	}
	return VerdictOf(reply)
}

// Ask makes a call over the worker's connection and returns the RateLimitResponse as it is on the wire.
func (c *Client) Ask(ctx context.Context, worker int, request []byte) (reply []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	err = c.conns[worker%len(c.conns)].Invoke(ctx, method, request, &reply)
	return reply, err
}

const (
	replyCode = 1
	overLimit = 2
)

var errReply = errors.New("the reply is no RateLimitResponse")

// VerdictOf reads a reply's overall code. A reply without one counts as allowed, as it does for Envoy.
func VerdictOf(reply []byte) (Verdict, error) {
	verdict := Allowed
	for len(reply) > 0 {
		number, kind, n := protowire.ConsumeTag(reply)
		if n < 0 {
			return 0, errReply
		}
		reply = reply[n:]
		if number == replyCode && kind == protowire.VarintType {
			code, n := protowire.ConsumeVarint(reply)
			if n < 0 {
				return 0, errReply
			}
			verdict = Allowed
			if code == overLimit {
				verdict = Denied
			}
			reply = reply[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(number, kind, reply); n < 0 {
			return 0, errReply
		}
		reply = reply[n:]
	}
	return verdict, nil
}

// raw is a codec that leaves messages as they are on the wire: the generator shares the machine's cores with what it measures.
type raw struct{}

// Name implements [encoding.CodecV2]: to the server the messages are what they always are.
func (raw) Name() string { return "proto" }

// Marshal implements [encoding.CodecV2].
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, fmt.Errorf("%T is no bytes", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal implements [encoding.CodecV2].
func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	to, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is no place for bytes", v)
	}
	*to = data.Materialize()
	return nil
}
