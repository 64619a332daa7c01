//go:build !race

package ratelimit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const benchPolicies = `
domain: edge
policies:
  - {id: user, match: {plan: free}, key: [user], algorithm: token-bucket, capacity: 999999999999, refillPerSecond: 1000000, onStoreFailure: open}
  - {id: tenant, key: [tenant], algorithm: token-bucket, capacity: 999999999999, refillPerSecond: 1000000, onStoreFailure: open}
`

// ways are the three ways to a decision under two policies.
func ways(tb testing.TB) map[string]func() {
	limiter := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10})})
	limiter.Use(set(tb, benchPolicies))
	request := ratelimit.Request{Domain: "edge", Attributes: map[string]string{
		"plan": "free", "user": "alice.of.the.looking.glass@example.com", "tenant": "acme", "route": "POST /v1/payments",
	}}
	ctx := tb.Context()
	return map[string]func(){
		"check": func() {
			if d, err := limiter.Check(ctx, request); err != nil || !d.Allowed || len(d.Checks) != 2 {
				tb.Fatal(d, err)
			}
		},
		"call": func() {
			c := limiter.Begin([]byte(request.Domain))
			for name, value := range request.Attributes {
				c.AddString(0, name, value)
			}
			if d := c.Check(ctx); !d.Allowed || len(d.Checks) != 2 {
				tb.Fatal(d)
			}
			c.Release()
		},
		"reserve and commit": func() {
			r, err := limiter.Reserve(ctx, request)
			if err != nil || !r.Decision.Allowed {
				tb.Fatal(err)
			}
			if _, err := r.Commit(ctx, 3); err != nil {
				tb.Fatal(err)
			}
		},
	}
}

func TestAllocations(t *testing.T) {
	most := map[string]float64{"call": 0, "check": 1, "reserve and commit": 10}
	for name, way := range ways(t) {
		require.LessOrEqual(t, testing.AllocsPerRun(1000, way), most[name], name)
	}
}

func BenchmarkDecision(b *testing.B) {
	for name, way := range ways(b) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				way()
			}
		})
	}
}
