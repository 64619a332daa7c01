package rls_test

import (
	"context"
	"fmt"
	"testing"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	envoyrls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// fixedStore admits everything, at no cost.
type fixedStore struct{}

func (fixedStore) Acquire(_ context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	for range buckets {
		results = append(results, ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Remaining: 19})
	}
	return results
}

// BenchmarkDecision is all that happens between a call's bytes and its answer's, without gRPC and store.
func BenchmarkDecision(b *testing.B) {
	for _, n := range []int{1, 10, 10000} {
		b.Run(fmt.Sprintf("policies=%d", n), func(b *testing.B) {
			text := "policies:\n  - {id: free, match: {plan: free}, key: [apiKey], algorithm: token-bucket, capacity: 20, refillPerMinute: 100, onStoreFailure: local}\n"
			for i := 1; i < n; i++ {
				text += fmt.Sprintf("  - {id: p%d, match: {plan: p%d}, key: [apiKey], algorithm: token-bucket, capacity: 20, refillPerMinute: 100, onStoreFailure: local}\n", i, i)
			}
			f, err := policy.Parse("p.yaml", []byte(text))
			require.NoError(b, err)
			set, err := policy.NewSet([]*policy.File{f})
			require.NoError(b, err)
			l := ratelimit.New(ratelimit.Options{Store: fixedStore{}})
			l.Use(set)
			s := rls.NewService(l, rls.Hooks{})
			wire, err := proto.Marshal(&envoyrls.RateLimitRequest{Domain: "edge", Descriptors: []*common.RateLimitDescriptor{{
				Entries: []*common.RateLimitDescriptor_Entry{{Key: "plan", Value: "free"}, {Key: "api_key", Value: "k12345"}},
			}}})
			require.NoError(b, err)
			var req descriptors.Request
			var resp rls.Response
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				if req.Unmarshal(wire) != nil {
					b.Fatal()
				}
				resp.Reset()
				if s.ShouldRateLimit(b.Context(), &req, &resp) != nil {
					b.Fatal()
				}
				out = resp.Append(out[:0])
			}
			require.Equal(b, rls.OK, resp.Code)
		})
	}
}
