package policy_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// keyFor gives the key under which tenant and username are counted.
func keyFor(tenant, username string) string {
	return policy.NewKey(policy.Part{Name: "tenant", Value: tenant}, "api", policy.Part{Name: "username", Value: username}).String()
}

func TestKeyForm(t *testing.T) {
	require.Equal(t, "rl:{t:acme}:api:u:manoj", keyFor("acme", "manoj"))
	require.Equal(t, "rl:{ip:2001:db8:1:2::/64}:login:u:a%3Ab",
		policy.NewKey(policy.Part{Name: "ip", Value: "2001:db8:1:2::/64"}, "login", policy.Part{Name: "username", Value: "a:b"}).String())
	require.Equal(t, "rl:{id:site}:site", policy.NewKey(policy.Part{}, "site").String())
	require.Equal(t, "rl:{region:eu}:a%3Ab%7B", policy.NewKey(policy.Part{Name: "region", Value: "eu"}, "a:b{").String())
}

func TestField_FiveDifferentBuckets(t *testing.T) {
	keys := map[string]bool{}
	for _, v := range [][2]string{{"a:u:b", "c"}, {"a", "b:c"}, {"a_b", "c"}, {"a", "b_c"}, {"", "abc"}} {
		keys[keyFor(v[0], v[1])] = true
	}
	require.Len(t, keys, 5)
}

func TestField_HostileValues(t *testing.T) {
	long := strings.Repeat("x", 64<<10)
	values := []string{long + "a", long + "b", "nul\x00", "new\nline", "new\r\nline", "emoji😀", "{", "}", "{}", "%7B", "#", "%23", "", ":", "%"}
	keys := map[string]string{}
	for _, tenant := range values {
		for _, username := range values {
			k := keyFor(tenant, username)
			require.LessOrEqual(t, len(k), policy.MaxKeyBytes)
			require.Equal(t, 1, strings.Count(k, "{"))
			require.Equal(t, 1, strings.Count(k, "}"))
			require.NotContains(t, keys, k)
			keys[k] = tenant + "\xff" + username
		}
	}
}

// FuzzKey: two different inputs never give one key, no value opens or closes a brace, no key is too long.
func FuzzKey(f *testing.F) {
	f.Add("a:u:b", "c", "a", "b:c")
	f.Add("", "abc", "a", "bc")
	f.Add("{t:x}", "%7B", "\xff\xfe", "\xff\xfd")
	f.Add(strings.Repeat("a", 64), "#", strings.Repeat("a", 65), "%23")
	f.Fuzz(func(t *testing.T, tenant1, user1, tenant2, user2 string) {
		k1, k2 := keyFor(tenant1, user1), keyFor(tenant2, user2)
		if same := tenant1 == tenant2 && user1 == user2; same != (k1 == k2) {
			t.Fatalf("(%q, %q) and (%q, %q) give %s and %s", tenant1, user1, tenant2, user2, k1, k2)
		}
		for _, k := range []string{k1, k2} {
			if len(k) > policy.MaxKeyBytes || strings.Count(k, "{") != 1 || strings.Count(k, "}") != 1 || !bytes.HasPrefix([]byte(k), []byte("rl:{t:")) {
				t.Fatalf("key %q", k)
			}
		}
	})
}

func TestKeyTag(t *testing.T) {
	ip := policy.Part{Name: "ip", Value: "2001:db8::/64"}
	one, two := policy.NewKey(ip, "one", policy.Part{Name: "username", Value: "a}b{c"}), policy.NewKey(ip, "two")
	require.Equal(t, "ip:2001:db8::/64", string(one.Tag()))
	require.Equal(t, one.Tag(), two.Tag())
	require.Equal(t, "id:site", string(policy.NewKey(policy.Part{}, "site").Tag()))
	require.Empty(t, policy.Key{}.Tag())
}

func TestKeyClone(t *testing.T) {
	k := policy.NewKey(policy.Part{Name: "tenant", Value: "acme"}, "id")
	text, c := k.String(), k.Clone()
	clear(k.Bytes())
	require.Equal(t, text, c.String())
}
