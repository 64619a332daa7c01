package policy_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// keyOf gives the policy of a file with one, and the key that it makes of a request.
func keyOf(t require.TestingT, file string, facts ...policy.Part) (*policy.Policy, policy.Key) {
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(file)})
	require.NoError(t, err)
	var a policy.Attributes
	a.Reset(set.View(nil))
	for _, f := range facts {
		a.Add(0, []byte(f.Name), []byte(f.Value))
	}
	hits := a.Match(nil)
	require.Len(t, hits, 1)
	return hits[0].Policy, hits[0].Key
}

func TestParts(t *testing.T) {
	const numbers = `algorithm: token-bucket, capacity: 3, refillPerDay: 1, onStoreFailure: open`
	facts := []policy.Part{{Name: "tenant", Value: "a:b}"}, {Name: "ip", Value: "2001:db8::1"}, {Name: "username", Value: "u:x"}, {Name: "a", Value: "1"}}
	tests := []struct {
		name, policy string
		want         []policy.Part
	}{
		{"nothing", `id: "p:1", key: []`, nil},
		{"nothing, in shadow", `id: p, mode: shadow, key: []`, nil},
		{"one", `id: p, key: [username]`, []policy.Part{{Name: "username", Value: "u%3Ax"}}},
		{"an odd id", `id: "p}:x", key: [username]`, []policy.Part{{Name: "username", Value: "u%3Ax"}}},
		{"an address in the tag", `id: p, key: [username, ip]`, []policy.Part{{Name: "ip", Value: "2001:db8::/64"}, {Name: "username", Value: "u%3Ax"}}},
		{"an address in the middle", `id: p, key: [a, ip, tenant, username]`, []policy.Part{{Name: "tenant", Value: "a%3Ab%7D"}, {Name: "a", Value: "1"}, {Name: "ip", Value: "2001:db8::/64"}, {Name: "username", Value: "u%3Ax"}}},
		{"an address at the end, in shadow", `id: p, mode: shadow, key: [ip, a], hashTag: a`, []policy.Part{{Name: "a", Value: "1"}, {Name: "ip", Value: "2001:db8::/64"}}},
		{"a tag of its own", `id: p, key: [a], hashTag: tenant, onMissingKey: skip`, []policy.Part{{Name: "tenant", Value: "a%3Ab%7D"}, {Name: "a", Value: "1"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, key := keyOf(t, "policies: [{"+tt.policy+", "+numbers+"}]", facts...)
			got, ok := p.Parts(key)
			require.True(t, ok, key)
			require.Equal(t, tt.want, got)
		})
	}
}

// TestPartsOfOthers: what is no key of the policy is told, not guessed.
func TestPartsOfOthers(t *testing.T) {
	p, own := keyOf(t, `policies: [{id: p, key: [tenant, username], algorithm: token-bucket, capacity: 3, refillPerDay: 1, onStoreFailure: open}]`,
		policy.Part{Name: "tenant", Value: "t"}, policy.Part{Name: "username", Value: "u"})
	_, ok := p.Parts(own)
	require.True(t, ok)
	tenant, user := policy.Part{Name: "tenant", Value: "t"}, policy.Part{Name: "username", Value: "u"}
	for _, key := range []policy.Key{
		{},
		policy.NewKey(tenant, "p"), policy.NewKey(tenant, "q", user), policy.NewKey(user, "p", tenant), policy.NewKey(tenant, "p", user, user),
		policy.NewKey(tenant, "p", tenant), policy.NewKey(policy.Part{}, "p"),
	} {
		_, ok := p.Parts(key)
		require.False(t, ok, key)
	}
}

func TestPartsOfAnyValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		facts := []policy.Part{
			{Name: "tenant", Value: rapid.String().Draw(t, "tenant")},
			{Name: "ip", Value: rapid.String().Draw(t, "ip")},
			{Name: "username", Value: rapid.String().Draw(t, "username")},
		}
		p, key := keyOf(t, `policies: [{id: p, key: [ip, tenant, username], algorithm: token-bucket, capacity: 3, refillPerDay: 1, onStoreFailure: open}]`, facts...)
		parts, ok := p.Parts(key)
		require.True(t, ok, key)
		require.Len(t, parts, 3)
		text := "rl:{t:" + parts[0].Value + "}:p:ip:" + parts[1].Value + ":u:" + parts[2].Value
		require.Equal(t, key.String(), text)
	})
}

func TestCloneInto(t *testing.T) {
	one, two := policy.NewKey(policy.Part{Name: "tenant", Value: "acme"}, "p"), policy.NewKey(policy.Part{Name: "tenant", Value: "b"}, "q")
	kept := one.CloneInto(policy.Key{})
	require.Equal(t, one.String(), kept.String())
	require.Zero(t, testing.AllocsPerRun(10, func() { kept = two.CloneInto(kept) }))
	require.Equal(t, two.String(), kept.String())
	require.Equal(t, "rl:{t:acme}:p", one.String())
}
