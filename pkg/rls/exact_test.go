package rls_test

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"

	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors/descriptorstest"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

const hundred = `
domain: edge
policies:
  - {id: bucket, match: {kind: bucket}, key: [user], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: local}
  - {id: log, match: {kind: log}, key: [user], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: closed}
  - {id: both, match: {kind: both}, key: [user], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: closed}
  - {id: all, match: {kind: both}, key: [], algorithm: token-bucket, capacity: 150, refillPerDay: 1, onStoreFailure: local}
`

// TestExactlyTheLimit: 200 clients at once, 5 calls each, on one key that admits 100.
func TestExactlyTheLimit(t *testing.T) {
	runs := 3
	if os.Getenv("ENVOY_RLS_LONG") == "1" {
		runs = 20
	}
	for _, kind := range []string{"bucket", "log", "both"} {
		t.Run(kind, func(t *testing.T) {
			for range runs {
				cc := serve(t, exactService(t))
				require.EqualValues(t, 100, admitted(t, cc, kind, "alice"))
				if kind == "both" {
					require.EqualValues(t, 50, admitted(t, cc, kind, "bob"), "the policy for all was charged what alice was admitted, no more")
				}
			}
		})
	}
}

func exactService(t *testing.T) *rls.Service {
	t.Helper()
	f, err := policy.Parse("policies.yaml", []byte(hundred))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	l := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{})})
	l.Use(set)
	return rls.NewService(l, rls.Hooks{})
}

// admitted sends 1,000 calls from 200 clients that start together.
func admitted(t *testing.T, cc *grpc.ClientConn, kind, user string) int64 {
	t.Helper()
	client := envoyrls.NewRateLimitServiceClient(cc)
	req := descriptorstest.Ordinary()
	req.HitsAddend = 0
	req.Descriptors = req.Descriptors[:0]
	req.Descriptors = append(req.Descriptors, descriptorstest.Descriptor("kind", kind, "user", user))
	var ok atomic.Int64
	var group sync.WaitGroup
	start := make(chan struct{})
	for range 200 {
		group.Go(func() {
			<-start
			for range 5 {
				resp, err := client.ShouldRateLimit(t.Context(), req)
				if err != nil {
					t.Error(err)
					return
				}
				if resp.OverallCode == envoyrls.RateLimitResponse_OK {
					ok.Add(1)
				}
			}
		})
	}
	close(start)
	group.Wait()
	return ok.Load()
}
