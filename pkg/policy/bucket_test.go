package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// TestBucketIsTheOneThatMatches: wherever a policy applies, its bucket is the one that it is asked for by name.
func TestBucketIsTheOneThatMatches(t *testing.T) {
	s := set(t, "domain: edge\nattributes: {x-user: username, where: '{region}/{zone}'}",
		"id: a, match: {plan: free}, key: [apiKey], hashTag: tenant, onMissingKey: skip, overrides: [{match: {tenant: '1'}, capacity: 50, comment: c}]",
		"id: b, match: {plan: [free, pro]}, key: [ip, username], normalize: lower",
		"id: c, key: [where], mode: shadow",
		"id: d, match: {plan: pro}, key: []")
	rapid.Check(t, func(t *rapid.T) {
		var a policy.Attributes
		a.Reset(s.View([]byte("edge")))
		for _, name := range []string{"plan", "apiKey", "tenant", "ip", "x-user", "region", "zone"} {
			if v := rapid.SampledFrom([]string{"", "free", "pro", "1", "Alice", "192.0.2.1"}).Draw(t, name); v != "" {
				a.Add(0, []byte(name), []byte(v))
			}
		}
		for _, h := range a.Match(nil) {
			got := a.Bucket(h.Policy)
			require.Equal(t, h.Missing, got.Missing)
			require.Equal(t, h.Key.String(), got.Key.String())
			require.Same(t, h.Numbers, got.Numbers)
		}
	})
}

func TestBucketDoesNotAskForConditions(t *testing.T) {
	s := set(t, "domain: edge", "id: login, match: {route: POST /login}, key: [username]")
	p := s.Policy("login")
	require.Nil(t, s.Policy("logout"))
	var a policy.Attributes
	a.Reset(s.ViewOf(p))
	require.Equal(t, "username", a.Bucket(p).Missing)
	a.Add(0, []byte("username"), []byte("alice"))
	require.Empty(t, a.Match(nil))
	require.Equal(t, "rl:{u:alice}:login", a.Bucket(p).Key.String())
}

func TestHidden(t *testing.T) {
	k := policy.NewKey(policy.Part{Name: "username", Value: "alice"}, "login")
	require.Regexp(t, "^#[0-9a-f]{12}$", k.Hidden())
	require.Equal(t, k.Hidden(), policy.HideKey(k.Bytes()))
	require.NotEqual(t, k.Hidden(), policy.NewKey(policy.Part{Name: "username", Value: "alicf"}, "login").Hidden())
}
