package grpclimit_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/pkg/grpclimit"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const one = `
policies:
  - {id: calls, name: per-user, match: {route: POST /grpc.testing.TestService/*}, key: [user], algorithm: token-bucket, capacity: 1, refillPerSecond: 4, onStoreFailure: open}
`

const noRetry = `{}`

// retrying is a client that, but for what a server says, waits for half a minute and more.
func retrying(codes string) string {
	return fmt.Sprintf(`{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "40s",
		"maxBackoff": "40s", "backoffMultiplier": 1, "retryableStatusCodes": [%s]}}]}`, codes)
}

func TestAllowed(t *testing.T) {
	l := start(t, one, noRetry, nil)
	got, err := l.call()
	require.NoError(t, err)
	require.Equal(t, []string{`"per-user";q=1;w=1`}, got.header["ratelimit-policy"])
	require.Equal(t, []string{`"per-user";r=0;t=1`}, got.header["ratelimit"])
	require.NotContains(t, got.trailer, "ratelimit")
	require.NotContains(t, got.trailer, "grpc-retry-pushback-ms")
}

func TestDenied(t *testing.T) {
	l := start(t, one, noRetry, nil)
	_, err := l.call()
	require.NoError(t, err)
	got, err := l.call()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Equal(t, []string{"250"}, got.trailer["grpc-retry-pushback-ms"])
	require.Equal(t, []string{`"per-user";q=1;w=1`}, got.trailer["ratelimit-policy"])
	require.Equal(t, []string{`"per-user";r=0;t=1`}, got.trailer["ratelimit"])
	require.Empty(t, got.header, "a client retries nothing that has a header")
	details := status.Convert(err).Details()
	require.Len(t, details, 2)
	violations := details[0].(*errdetails.QuotaFailure).GetViolations()
	require.Len(t, violations, 1)
	require.Equal(t, "policy:per-user", violations[0].GetSubject())
	require.Equal(t, "nothing left for now", violations[0].GetDescription())
	require.Equal(t, 250*time.Millisecond, details[1].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
}

func TestPushback(t *testing.T) {
	tests := map[string]struct {
		refill   string
		pushback string
		delay    time.Duration
	}{
		"rounded up":             {"refillPerSecond: 3", "334", 334 * time.Millisecond},
		"at least 1 ms":          {"refillPerSecond: 1000000", "1", time.Millisecond},
		"more than 32 bits hold": {"refillPerDay: 0.01", "2147483647", 100 * 24 * time.Hour},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := start(t, "policies:\n  - {id: calls, key: [user], algorithm: token-bucket, capacity: 1, onStoreFailure: open, "+tt.refill+"}\n", noRetry, nil)
			_, err := l.call()
			require.NoError(t, err)
			got, err := l.call()
			require.Equal(t, []string{tt.pushback}, got.trailer["grpc-retry-pushback-ms"])
			details := status.Convert(err).Details()
			require.Equal(t, tt.delay, details[1].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
		})
	}
}

// TestStockClientRetries: a client with a retry policy waits as long as it is told, and is admitted then.
func TestStockClientRetries(t *testing.T) {
	l := start(t, one, retrying(`"RESOURCE_EXHAUSTED"`), nil)
	_, err := l.call()
	require.NoError(t, err)
	began := time.Now()
	got, err := l.call()
	require.NoError(t, err)
	took := time.Since(began)
	require.Equal(t, []bool{true, false, true}, l.told())
	require.GreaterOrEqual(t, took, 250*time.Millisecond)
	require.Less(t, took, 30*time.Second, "it went by its own backoff")
	require.Equal(t, []string{`"per-user";r=0;t=1`}, got.header["ratelimit"])
}

// TestStockClientGivesUp: it does not retry what can never succeed, though its policy would.
func TestStockClientGivesUp(t *testing.T) {
	tests := map[string]struct {
		change      func(*lab)
		description string
	}{
		"costs too much": {func(l *lab) { l.options.Cost = func(*grpclimit.RPC) uint64 { return 2 } }, "the call costs more than this policy ever allows"},
		"lacks the key":  {func(l *lab) { l.options.Attributes = l.options.Attributes[:1] }, "the call lacks what this policy counts by"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := start(t, `
policies:
  - {id: calls, match: {route: "*"}, key: [user], onMissingKey: deny, algorithm: token-bucket, capacity: 1, refillPerSecond: 4, onStoreFailure: open}
`, retrying(`"RESOURCE_EXHAUSTED"`), tt.change)
			got, err := l.call()
			require.Equal(t, codes.ResourceExhausted, status.Code(err))
			require.Equal(t, []string{"-1"}, got.trailer["grpc-retry-pushback-ms"])
			require.Equal(t, []bool{false}, l.told())
			details := status.Convert(err).Details()
			require.Len(t, details, 1, "no RetryInfo")
			require.Equal(t, tt.description, details[0].(*errdetails.QuotaFailure).GetViolations()[0].GetDescription())
		})
	}
}

// failing is a store that answers nothing but the last calls.
type failing struct {
	ratelimit.Store
	times int
}

func (f *failing) Acquire(ctx context.Context, b []ratelimit.Bucket, r []ratelimit.Result) []ratelimit.Result {
	if f.times == 0 {
		return f.Store.Acquire(ctx, b, r)
	}
	f.times--
	return []ratelimit.Result{{Err: errors.New("down")}}
}

const closed = "policies:\n  - {id: calls, key: [user], algorithm: token-bucket, capacity: 1, refillPerSecond: 4, onStoreFailure: closed}\n"

func TestUnavailable(t *testing.T) {
	l := start(t, closed, noRetry, func(l *lab) {
		l.options.Limiter = ratelimit.New(ratelimit.Options{Store: &failing{times: 1}, Policies: l.options.Limiter.Set()})
	})
	got, err := l.call()
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.Equal(t, []string{"1000"}, got.trailer["grpc-retry-pushback-ms"])
	require.NotContains(t, got.trailer, "ratelimit", "nobody knows what is left")
	details := status.Convert(err).Details()
	require.Len(t, details, 1)
	require.Equal(t, time.Second, details[0].(*errdetails.RetryInfo).GetRetryDelay().AsDuration())
}

func TestStockClientRetriesUnavailable(t *testing.T) {
	l := start(t, closed, retrying(`"UNAVAILABLE"`), func(l *lab) {
		store := &failing{Store: counting{}, times: 1}
		l.options.Limiter = ratelimit.New(ratelimit.Options{Store: store, Policies: l.options.Limiter.Set()})
	})
	_, err := l.call()
	require.NoError(t, err)
	require.Equal(t, []bool{false, true}, l.told())
}

// counting is a store that admits.
type counting struct{}

func (counting) Acquire(_ context.Context, b []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	results := make([]ratelimit.Result, len(b))
	for i := range results {
		results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Remaining: 3}
	}
	return results
}

// TestHandlerFails: the handler's error stays what it was, and as fit to be retried.
func TestHandlerFails(t *testing.T) {
	attempts := 0
	l := start(t, capacity(9), `{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 3, "initialBackoff": "0.001s",
		"maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["ABORTED"]}}]}`, func(l *lab) {
		l.unary = func(context.Context) error {
			if attempts++; attempts == 1 {
				return status.Error(codes.Aborted, "once more")
			}
			return status.Error(codes.NotFound, "gone")
		}
	})
	got, err := l.call()
	require.Equal(t, status.Error(codes.NotFound, "gone").Error(), err.Error())
	require.Equal(t, 2, attempts)
	require.Equal(t, []string{`"calls";r=7;t=2`}, got.trailer["ratelimit"])
	require.Empty(t, got.header)
}

// capacity gives policies with one bucket of that capacity.
func capacity(n int) string {
	return fmt.Sprintf("policies:\n  - {id: calls, key: [user], algorithm: token-bucket, capacity: %d, refillPerSecond: 4, onStoreFailure: open}\n", n)
}

// TestHeaderSentBehindItsBack: a handler that sends the header itself leaves the trailer.
func TestHeaderSentBehindItsBack(t *testing.T) {
	l := start(t, capacity(9), noRetry, func(l *lab) {
		l.unary = func(ctx context.Context) error { return grpc.SendHeader(ctx, metadata.Pairs("own", "1")) }
	})
	got, err := l.call()
	require.NoError(t, err)
	require.Equal(t, []string{"1"}, got.header["own"])
	require.Equal(t, []string{`"calls";r=8;t=2`}, got.trailer["ratelimit"])
}

func TestStreams(t *testing.T) {
	send := func(s testpb.TestService_FullDuplexCallServer) error {
		return s.Send(&testpb.StreamingOutputCallResponse{})
	}
	tests := []struct {
		name     string
		handler  func(testpb.TestService_FullDuplexCallServer) error
		messages int
		err      error
		header   bool // or the fields are in the trailer
	}{
		{"messages", func(s testpb.TestService_FullDuplexCallServer) error { return errors.Join(send(s), send(s)) }, 2, io.EOF, true},
		{"nothing", func(testpb.TestService_FullDuplexCallServer) error { return nil }, 0, io.EOF, true},
		{"a header of its own", func(s testpb.TestService_FullDuplexCallServer) error {
			return errors.Join(s.SetHeader(metadata.Pairs("own", "1")), s.SendHeader(metadata.Pairs("other", "2")), send(s))
		}, 1, io.EOF, true},
		{"a header behind its back", func(s testpb.TestService_FullDuplexCallServer) error {
			return errors.Join(grpc.SendHeader(s.Context(), metadata.Pairs("own", "1")), send(s))
		}, 1, io.EOF, false},
		{"fails at once", func(testpb.TestService_FullDuplexCallServer) error { return status.Error(codes.Aborted, "no") }, 0, status.Error(codes.Aborted, "no"), false},
		{"fails later", func(s testpb.TestService_FullDuplexCallServer) error {
			if err := errors.Join(send(s), send(s), send(s)); err != nil {
				return err
			}
			return status.Error(codes.Aborted, "no")
		}, 3, status.Error(codes.Aborted, "no"), true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := start(t, capacity(9), noRetry, func(l *lab) { l.duplex = tt.handler })
			got, n, err := l.stream()
			require.Equal(t, tt.err.Error(), err.Error())
			require.Equal(t, tt.messages, n)
			with, without := got.header, got.trailer
			if !tt.header {
				with, without = without, with
			}
			require.Equal(t, []string{`"calls";r=8;t=2`}, with["ratelimit"], "charged once")
			require.Equal(t, []string{`"calls";q=9;w=3`}, with["ratelimit-policy"])
			require.NotContains(t, without, "ratelimit")
		})
	}
}

func TestStreamDenied(t *testing.T) {
	l := start(t, one, noRetry, func(l *lab) { l.duplex = func(testpb.TestService_FullDuplexCallServer) error { return nil } })
	_, _, err := l.stream()
	require.Equal(t, io.EOF, err)
	got, _, err := l.stream()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Equal(t, []string{"250"}, got.trailer["grpc-retry-pushback-ms"])
	require.Len(t, status.Convert(err).Details(), 2)
}

func TestStreamRetries(t *testing.T) {
	l := start(t, one, retrying(`"RESOURCE_EXHAUSTED"`), func(l *lab) { l.duplex = func(testpb.TestService_FullDuplexCallServer) error { return nil } })
	for range 2 {
		_, _, err := l.stream()
		require.Equal(t, io.EOF, err)
	}
	require.Equal(t, []bool{true, false, true}, l.told())
}

// TestHiddenPolicies: a policy that clients may not know of denies without saying its name.
func TestHiddenPolicies(t *testing.T) {
	l := start(t, `
policies:
  - {id: secret, key: [user], algorithm: token-bucket, capacity: 0, refillPerSecond: 4, expose: never, onStoreFailure: open}
  - {id: trial, mode: shadow, key: [user], algorithm: token-bucket, capacity: 0, refillPerSecond: 4, onStoreFailure: open}
`, noRetry, nil)
	got, err := l.call()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
	require.Empty(t, status.Convert(err).Details())
	require.NotContains(t, fmt.Sprint(err, got), "secret")
	require.NotContains(t, fmt.Sprint(err, got), "trial")
	require.Equal(t, []string{"-1"}, got.trailer["grpc-retry-pushback-ms"])
}

func TestSkip(t *testing.T) {
	l := start(t, capacity(0), noRetry, func(l *lab) {
		l.options.Skip = func(rpc *grpclimit.RPC) bool { return rpc.Method == "/grpc.testing.TestService/EmptyCall" }
		l.duplex = func(testpb.TestService_FullDuplexCallServer) error { return nil }
	})
	got, err := l.call()
	require.NoError(t, err)
	require.NotContains(t, got.header, "ratelimit-policy")
	_, _, err = l.stream()
	require.Equal(t, codes.ResourceExhausted, status.Code(err))
}

// TestEndedCall: who hangs up before the store has counted is not let through by an open policy.
func TestEndedCall(t *testing.T) {
	l := start(t, one, noRetry, nil)
	limit, err := grpclimit.New(l.options)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-user", "alice")))
	cancel()
	_, err = limit.Unary(ctx, &testpb.Empty{}, &grpc.UnaryServerInfo{FullMethod: "/grpc.testing.TestService/EmptyCall"},
		func(context.Context, any) (any, error) { t.Error("the handler ran"); return nil, nil })
	require.Equal(t, codes.Canceled, status.Code(err))
	require.Equal(t, []bool{true}, l.told(), "open admits")
}

// TestCostAndAttributes: what the funcs see of a call, and what becomes of it.
func TestCostAndAttributes(t *testing.T) {
	type plan struct{}
	l := start(t, `
policies:
  - {id: route, match: {route: POST /a.B/C}, key: [route], algorithm: token-bucket, capacity: 9, refillPerSecond: 4, onStoreFailure: open}
  - {id: plan, match: {plan: gold}, key: [plan], algorithm: token-bucket, capacity: 9, refillPerSecond: 4, onStoreFailure: open}
  - {id: key, match: {apiKey: "*"}, key: [apiKey], algorithm: token-bucket, capacity: 9, refillPerSecond: 4, onStoreFailure: open}
  - {id: ip, match: {ip: "*"}, key: [ip], algorithm: token-bucket, capacity: 9, refillPerSecond: 4, onStoreFailure: open}
`, noRetry, func(l *lab) {
		l.options.Attributes = []grpclimit.Attribute{
			grpclimit.Route(), grpclimit.Peer(), grpclimit.Metadata("apiKey", "X-Api-Key"),
			grpclimit.Func("plan", func(rpc *grpclimit.RPC) (string, bool) { s, ok := rpc.Context.Value(plan{}).(string); return s, ok }),
		}
		l.options.Cost = func(rpc *grpclimit.RPC) uint64 {
			m, _ := rpc.Request.(*testpb.SimpleRequest)
			return uint64(m.GetResponseSize())
		}
	})
	limit, err := grpclimit.New(l.options)
	require.NoError(t, err)
	info := &grpc.UnaryServerInfo{FullMethod: "/a.B/C"}
	handler := func(context.Context, any) (any, error) { return nil, nil }
	ids := func(ctx context.Context, size int32) (ids []string) {
		l.decisions = nil
		_, err := limit.Unary(ctx, &testpb.SimpleRequest{ResponseSize: size}, info, handler)
		require.NoError(t, err)
		for _, c := range l.decisions[0].Checks {
			require.Equal(t, policy.Enforce, c.Policy.Mode)
			ids = append(ids, fmt.Sprintf("%s %v", c.Policy.ID, c.Result.Remaining))
		}
		return ids
	}
	require.Equal(t, []string{"route 5"}, ids(t.Context(), 4))
	require.Equal(t, []string{"route 5"}, ids(t.Context(), 0), "0 only looks")
	ctx := context.WithValue(metadata.NewIncomingContext(t.Context(), metadata.Pairs("x-api-key", "k1", "x-api-key", "k2")), plan{}, "gold")
	require.Equal(t, []string{"route 3", "plan 7", "key 7"}, ids(ctx, 2))
}

// TestPeer: over a real connection the address is the client's.
func TestPeer(t *testing.T) {
	l := start(t, "policies:\n  - {id: ip, match: {ip: 127.0.0.1}, key: [ip], algorithm: token-bucket, capacity: 9, refillPerSecond: 4, onStoreFailure: open}\n",
		noRetry, func(l *lab) { l.options.Attributes = []grpclimit.Attribute{grpclimit.Peer()} })
	got, err := l.call()
	require.NoError(t, err)
	require.Equal(t, []string{`"ip";r=8;t=2`}, got.header["ratelimit"])
}

func TestFaultyOptions(t *testing.T) {
	_, err := grpclimit.New(grpclimit.Options{Attributes: []grpclimit.Attribute{
		{}, grpclimit.Func("f", nil), grpclimit.Route(), grpclimit.Metadata("route", "x"),
	}})
	for _, fault := range []string{"no limiter", `attribute "" needs`, `attribute "f" needs`, `attribute "route" is given twice`} {
		require.ErrorContains(t, err, fault)
	}
}
