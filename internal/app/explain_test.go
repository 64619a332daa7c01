package app_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
	"github.com/envoy-rls/envoy-rls/internal/explain"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// A running service explains by its own buckets: nothing is spent, and nothing is counted as a decision.
func TestExplainSpendsNothing(t *testing.T) {
	i := start(t, `
domain: edge
policies:
  - {id: free, key: [apiKey], algorithm: sliding-log, limit: 5, window: 1h, onStoreFailure: local}
`)
	require.Equal(t, 2, i.admitted(2, "api_key", "k1"))
	decisions := i.metric(`envoy_rls_decisions_total{outcome="allowed",policy="free",source="store"}`)
	require.Equal(t, "2", decisions)
	req := &descriptors.Request{}
	require.NoError(t, req.SetAttributes([]descriptors.Attribute{{Name: "api_key", Value: "k1"}}))
	for range 50 {
		r, err := explain.Ask(t.Context(), adminhttp.Client{Addr: i.AdminAddr().String()}, req, false)
		require.NoError(t, err)
		require.True(t, r.Answer.Allowed)
		require.Equal(t, 3.0, *r.Answer.Checks[0].Remaining)
		require.Equal(t, "store", r.Answer.Checks[0].Source)
	}
	require.Equal(t, decisions, i.metric(`envoy_rls_decisions_total{outcome="allowed",policy="free",source="store"}`))
	require.Equal(t, 3, i.admitted(10, "api_key", "k1"))

	r, err := explain.Ask(t.Context(), adminhttp.Client{Addr: i.AdminAddr().String()}, req, false)
	require.NoError(t, err)
	require.False(t, r.Answer.Allowed)
	require.Contains(t, []string{"store", "cache"}, r.Answer.Checks[0].Source)
	require.Greater(t, r.Answer.Checks[0].Wait, 3000.0)
}
