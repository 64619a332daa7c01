package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func TestWithHashedKeys(t *testing.T) {
	const hash = "ak_5b11618c2e440278" // of secret1
	s := set(t, "domain: edge", `id: p, match: {apiKey: `+hash+`}, key: [apiKey]`)
	key := []string{"p rl:{k:" + hash + "}:p 1"}
	hashed := s.WithHashedKeys()
	require.Equal(t, s.Version(), hashed.Version())
	require.Equal(t, key, hits(s, "api_key=secret1"))
	require.Equal(t, key, hits(hashed, "api_key=secret1"))
	require.Equal(t, key, hits(hashed, "api_key="+hash))
	require.Empty(t, hits(s, "api_key="+hash), "a hash is no key where requests are decided")

	require.True(t, policy.LooksHashed(hash))
	require.False(t, policy.LooksHashed("ak_5b11618c2e44027"))
	require.Equal(t, "apiKey", s.View([]byte("edge")).Attribute([]byte("x-api-key")))
	require.Empty(t, s.View([]byte("edge")).Attribute([]byte("tenant")))
}

func TestExplainExpired(t *testing.T) {
	s := set(t, "", `id: p, key: [tenant], overrides: [`+
		`{match: {tenant: acme}, capacity: 1, comment: over, until: 2000-01-01}, `+
		`{match: {tenant: acme}, capacity: 2, comment: in force, until: 2100-01-01}, `+
		`{match: {tenant: other}, capacity: 3, comment: for others, until: 2000-01-01}]`)
	var a policy.Attributes
	add(&a, s.View(nil), "tenant=acme")
	e := a.Explain()[0]
	require.Equal(t, 2.0, e.Hits[0].Numbers.Capacity)
	require.Len(t, e.Expired, 1)
	require.Equal(t, "over", e.Expired[0].Comment)
	add(&a, s.View(nil), "plan=free")
	require.Empty(t, a.Explain()[0].Expired, "without a tenant")
}
