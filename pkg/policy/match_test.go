package policy_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

const tail = ", algorithm: token-bucket, capacity: 10, refillPerMinute: 10, onStoreFailure: open}\n"

// set loads policies written one a line without their numbers.
func set(t testing.TB, head string, lines ...string) *policy.Set {
	t.Helper()
	var b strings.Builder
	b.WriteString(head + "\npolicies:\n")
	for _, l := range lines {
		b.WriteString("  - {" + l + tail)
	}
	f, err := policy.Parse("policies.yaml", []byte(b.String()))
	require.NoError(t, err)
	s, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	return s
}

// add fills a from descriptors such as "plan=free api_key=k1" separated by semicolons.
func add(a *policy.Attributes, v *policy.View, descriptors string) {
	a.Reset(v)
	for g, d := range strings.Split(descriptors, ";") {
		for _, e := range strings.Split(d, ",") {
			if k, value, ok := strings.Cut(e, "="); ok {
				a.Add(g, []byte(strings.TrimSpace(k)), []byte(value))
			}
		}
	}
}

// hits tells what matches, as "id key groups" or "id missing attribute".
func hits(s *policy.Set, descriptors string) []string {
	var a policy.Attributes
	add(&a, s.View([]byte("edge")), descriptors)
	list := []string{}
	for _, h := range a.Match(nil) {
		if h.Missing != "" {
			list = append(list, h.Policy.ID+" missing "+h.Missing)
			continue
		}
		list = append(list, fmt.Sprintf("%s %s %b", h.Policy.ID, h.Key, h.Groups))
	}
	return list
}

func TestMatch(t *testing.T) {
	s := set(t, "domain: edge\nattributes: {x-user: username, where: '{region}/{zone}'}",
		`id: free, match: {plan: free}, key: [apiKey], hashTag: tenant, onMissingKey: deny`,
		`id: login, match: {route: "POST /auth/login"}, key: [ip, username], normalize: lower`,
		`id: some, match: {plan: [pro, max]}, key: [tenant]`,
		`id: v1, match: {path: "/v1/*"}, key: [ip]`,
		`id: beta, match: {beta: "*"}, key: [tenant]`,
		`id: anonymous, match: {apiKey: absent, path: "*"}, key: [ip]`,
		`id: placed, match: {where: eu/a}, key: [where]`,
		`id: site, match: {all: "1"}, key: []`,
		`id: shade, match: {shade: "1"}, key: [tenant], mode: shadow`,
	)
	tests := []struct {
		name, descriptors string
		want              []string
	}{
		{"worked example", "plan=free,api_key=secret1; tenant=acme", []string{"free rl:{t:acme}:free:k:ak_5b11618c2e440278 1"}},
		{"each in a descriptor of its own", "plan=free;api_key=secret1;tenant=acme", []string{"free rl:{t:acme}:free:k:ak_5b11618c2e440278 11"}},
		{"no tenant for the tag", "plan=free,api_key=secret1", []string{"free missing tenant"}},
		{"no key", "plan=free;tenant=acme", []string{"free missing apiKey"}},
		{"empty key is a key", "plan=free,api_key=;tenant=acme", []string{"free rl:{t:acme}:free:k:ak_e3b0c44298fc1c14 1"}},
		{"composed route", "method=POST,path=//auth/./login?x=1;remote_address=203.0.113.7:99;x-user= Alice ", []string{"anonymous rl:{ip:203.0.113.7}:anonymous 11", "login rl:{ip:203.0.113.7}:login:u:alice 111"}},
		{"route given", "route=POST /auth/login;remote_address=203.0.113.7;username=bob", []string{"login rl:{ip:203.0.113.7}:login:u:bob 111"}},
		{"any of", "plan=max;tenant=acme", []string{"some rl:{t:acme}:some 11"}},
		{"prefix", "api_key=k;path=/v1/x;remote_address=2001:db8::1", []string{"v1 rl:{ip:2001:db8::/64}:v1 110"}},
		{"prefix too short", "api_key=k;path=/v1;remote_address=2001:db8::1", []string{}},
		{"present", "beta=;tenant=acme", []string{"beta rl:{t:acme}:beta 11"}},
		{"absent", "path=/;remote_address=203.0.113.7", []string{"anonymous rl:{ip:203.0.113.7}:anonymous 11"}},
		{"composed by the file", "region=eu,zone=a", []string{"placed rl:{where:eu/a}:placed 1"}},
		{"one bucket for all", "all=1;tenant=x", []string{"site rl:{id:site}:site 1"}},
		{"shadow", "shade=1;tenant=x", []string{"shade rl:{t:x}:shade:shadow 11"}},
		{"nothing known", "a=b;=x;", []string{}},
		{"two tenants, each its own bucket", "plan=pro;tenant=a;tenant=b", []string{"some rl:{t:a}:some 11", "some rl:{t:b}:some 101"}},
		{
			"two keys held with their tenants", "plan=free;api_key=secret1,tenant=a;api_key=secret1,tenant=b",
			[]string{"free rl:{t:a}:free:k:ak_5b11618c2e440278 11", "free rl:{t:b}:free:k:ak_5b11618c2e440278 101"},
		},
		{"two values that no descriptor holds together", "plan=free,api_key=a;plan=pro,api_key=b;tenant=x;tenant=y", []string{"free missing tenant", "some missing tenant"}},
		{"the same value twice is one value", "plan=pro;tenant=a;tenant=a", []string{"some rl:{t:a}:some 111"}},
		{"one address in two forms", "api_key=k;path=/v1/x;remote_address=203.0.113.7;masked_remote_address=::ffff:203.0.113.7", []string{"v1 rl:{ip:203.0.113.7}:v1 1110"}},
		{"second value in a descriptor is ignored", "plan=pro;tenant=a,tenant=b", []string{"some rl:{t:a}:some 11"}},
		{"a value said again masks none", "plan=pro;tenant=a;tenant=b,tenant=a", []string{"some rl:{t:a}:some 11", "some rl:{t:b}:some 101"}},
		{"two keys, one without its tenant", "plan=free;api_key=secret1,tenant=a;api_key=k2;tenant=b", []string{"free rl:{t:a}:free:k:ak_5b11618c2e440278 11", "free missing tenant", "free missing apiKey"}},
		{"masked to nothing", "api_key=k;path=/v1/x;masked_remote_address=::/64", []string{"v1 missing ip"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := hits(s, tt.descriptors)
			require.ElementsMatch(t, tt.want, got)
		})
	}
}

func TestMatchInFileOrder(t *testing.T) {
	s := set(t, "", `id: c, key: [ip]`, `id: a, match: {plan: free}, key: [ip]`, `id: b, match: {path: "/*"}, key: [ip]`, `id: d, key: [ip]`)
	got := hits(s, "plan=free;path=/x;remote_address=10.0.0.1")
	require.Len(t, got, 4)
	for i, id := range []string{"c", "a", "b", "d"} {
		require.True(t, strings.HasPrefix(got[i], id+" "), got[i])
	}
}

// TestIndexAgreesWithAsking: the index finds what asking every policy finds.
func TestIndexAgreesWithAsking(t *testing.T) {
	var lines []string
	for i := range 300 {
		lines = append(lines, []string{
			fmt.Sprintf(`id: p%d, match: {tenant: t%d}, key: [tenant]`, i, i%50),
			fmt.Sprintf(`id: p%d, match: {tenant: [t%d, t%d], plan: free}, key: [ip]`, i, i%50, i%7),
			fmt.Sprintf(`id: p%d, match: {path: "/v%d/*"}, key: [ip]`, i, i%20),
			fmt.Sprintf(`id: p%d, match: {plan: absent}, key: [ip]`, i),
			fmt.Sprintf(`id: p%d, match: {plan: "*"}, key: [tenant]`, i),
		}[i%5])
	}
	s := set(t, "", lines...)
	for i := range 60 {
		descriptors := fmt.Sprintf("tenant=t%d;path=/v%d/x;remote_address=10.0.0.%d", i, i, i)
		if i%2 == 0 {
			descriptors += ";plan=free"
		}
		if i%3 == 0 {
			descriptors += fmt.Sprintf(";tenant=t%d", i+1)
		}
		fast := hits(s, descriptors)
		var a policy.Attributes
		add(&a, s.View(nil), descriptors)
		a.Partial = true // asks every policy; every attribute that a condition names is there or told absent
		slow := []string{}
		for _, h := range a.Match(nil) {
			if h.Policy.Match[0].Kind != policy.Absent && i%2 == 1 && needsPlan(h.Policy) {
				continue
			}
			if h.Missing == "" {
				slow = append(slow, fmt.Sprintf("%s %s %b", h.Policy.ID, h.Key, h.Groups))
			}
		}
		require.Equal(t, slow, fast, descriptors)
	}
}

// TestAValueWrittenTwiceCountsOnce: a request meets such a policy once, not once for each time.
func TestAValueWrittenTwiceCountsOnce(t *testing.T) {
	s := set(t, "",
		`id: again, match: {tenant: [a, b, a]}, key: [tenant]`,
		`id: one-client, match: {ip: ["2001:db8::1", "2001:db8::2"]}, key: [ip]`)
	require.Equal(t, []string{"again rl:{t:a}:again 1", "one-client rl:{ip:2001:db8::/64}:one-client 10"}, hits(s, "tenant=a;remote_address=2001:db8::9"))
}

func needsPlan(p *policy.Policy) bool {
	for _, c := range p.Match {
		if c.Attribute == "plan" && c.Kind != policy.Absent {
			return true
		}
	}
	return false
}

func TestField_Usernames(t *testing.T) {
	for normalize, want := range map[string]int{"lower": 1, "none": 3} {
		s := set(t, "", `id: login, key: [username], normalize: `+normalize)
		keys := map[string]bool{}
		for _, name := range []string{"Alice", "ALICE", " alice "} {
			keys[hits(s, "username="+name)[0]] = true
		}
		require.Len(t, keys, want, normalize)
	}
}

func TestField_Addresses(t *testing.T) {
	s := set(t, "", `id: edge, key: [ip]`)
	bucket := func(ip string) string { return hits(s, "remote_address="+ip)[0] }
	for _, same := range [][]string{
		{"203.0.113.7", "::ffff:203.0.113.7", "::ffff:cb00:7107"},
		{"2001:db8:1:2::1.2.3.4", "2001:DB8:1:2::9"},
		{"198.51.100.4:51000", "198.51.100.4"},
		{"[2001:db8::1]:443", "2001:db8::2"},
	} {
		for _, ip := range same {
			require.Equal(t, bucket(same[0]), bucket(ip))
		}
	}
	require.NotEqual(t, bucket("64:ff9b::808:808"), bucket("64:ff9b::909:909"))

	shared := map[string]bool{}
	odd := []string{"unknown", "", "999.1.1.1", strings.Repeat("x", 5000), strings.Repeat("x", 4999)}
	var a policy.Attributes
	for _, ip := range append(odd, "203.0.113.7", "2001:db8::1", "fe80::1%eth0") {
		shared[bucket(ip)] = true
	}
	require.Len(t, shared, len(odd)+3)
	for _, ip := range odd {
		add(&a, s.View(nil), "remote_address="+ip)
		require.Equal(t, 1, a.InvalidIPs, "counted: %.20s", ip)
	}
}

func TestField_Routes(t *testing.T) {
	s := set(t, "", `id: login, match: {route: "POST /auth/login"}, key: [ip]`)
	for _, path := range []string{"/auth/login?x=1", "//auth/login", "/auth/./login"} {
		require.Len(t, hits(s, "method=POST;path="+path+";remote_address=10.0.0.1"), 1, path)
	}
}

func TestOverrides(t *testing.T) {
	head := "policies:\n  - {id: pro, key: [tenant, apiKey], algorithm: token-bucket, capacity: 10, refillPerMinute: 10, onStoreFailure: open, overrides: [" +
		`{match: {tenant: acme, apiKey: secret1}, capacity: 50, comment: one key}, {match: {tenant: acme}, capacity: 30, comment: a deal, until: "2000-01-01T01:00:00Z"}, {match: {tenant: "a*"}, capacity: 20, comment: more}]}`
	f, err := policy.Parse("policies.yaml", []byte(head))
	require.NoError(t, err)
	s, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	capacity := func(descriptors string) float64 {
		var a policy.Attributes
		add(&a, s.View(nil), descriptors)
		return a.Match(nil)[0].Numbers.Capacity
	}
	synctest.Test(t, func(t *testing.T) { // the bubble's clock starts at midnight, 2000-01-01 UTC
		require.Equal(t, 50.0, capacity("tenant=acme;api_key=secret1"), "the first that matches wins")
		require.Equal(t, 30.0, capacity("tenant=acme;api_key=x"))
		require.Equal(t, 20.0, capacity("tenant=axe;api_key=x"))
		require.Equal(t, 10.0, capacity("tenant=beta;api_key=x"))
		time.Sleep(time.Hour - time.Nanosecond)
		require.Equal(t, 30.0, capacity("tenant=acme;api_key=x"))
		time.Sleep(time.Nanosecond)
		require.Equal(t, 20.0, capacity("tenant=acme;api_key=x"), "ended")
	})
}

// TestNormalizeHoldsForConditions: what is one user in the key is one user in match and overrides.
func TestNormalizeHoldsForConditions(t *testing.T) {
	text := `policies:
  - {id: few, match: {username: [Admin, "Röot"]}, key: [username], normalize: lower, algorithm: token-bucket, capacity: 5, refillPerDay: 1, onStoreFailure: open}
  - {id: dev, match: {username: "DEV-*"}, key: [username], normalize: lower, algorithm: token-bucket, capacity: 5, refillPerDay: 1, onStoreFailure: open}
  - {id: all, key: [username], normalize: lower, algorithm: token-bucket, capacity: 10, refillPerDay: 1, onStoreFailure: open, overrides: [{match: {username: mallory}, capacity: 0, comment: blocked}]}
  - {id: exact, match: {username: Admin}, key: [username], algorithm: token-bucket, capacity: 5, refillPerDay: 1, onStoreFailure: open}
`
	f, err := policy.Parse("policies.yaml", []byte(text))
	require.NoError(t, err)
	s, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	for name, want := range map[string][]string{
		"admin": {"few", "all"}, "ADMIN": {"few", "all"}, " Admin ": {"few", "all"}, "Admin": {"few", "all", "exact"},
		"RÖOT": {"few", "all"}, "dev-1": {"dev", "all"}, " Dev-2": {"dev", "all"}, "devil": {"all"},
	} {
		var ids []string
		for _, h := range hits(s, "username="+name) {
			ids = append(ids, strings.Fields(h)[0])
		}
		require.Equal(t, want, ids, "%q", name)
	}
	for _, name := range []string{"mallory", "Mallory", " MALLORY "} {
		var a policy.Attributes
		add(&a, s.View(nil), "")
		a.Add(0, []byte("username"), []byte(name))
		require.Zero(t, a.Match(nil)[0].Numbers.Capacity, "%q", name)
	}
}

func TestPartialHidesNothing(t *testing.T) {
	s := set(t, "", `id: login, match: {route: "POST /auth/login"}, key: [ip]`, `id: other, match: {plan: pro}, key: [ip]`)
	var a policy.Attributes
	add(&a, s.View(nil), "plan=free;remote_address=10.0.0.1")
	require.Empty(t, a.Match(nil))
	a.Partial = true
	got := a.Match(nil)
	require.Len(t, got, 1)
	require.Equal(t, "login", got[0].Policy.ID)
}

func TestReuseForgets(t *testing.T) {
	s := set(t, "", `id: a, key: [tenant]`, `id: b, match: {plan: "*"}, key: [tenant]`)
	var a policy.Attributes
	add(&a, s.View(nil), "tenant=x;tenant=y;plan=p")
	require.Len(t, a.Match(nil), 4)
	add(&a, s.View(nil), "tenant=z")
	got := a.Match(nil)
	require.Len(t, got, 1)
	require.Equal(t, "rl:{tenant:z}:a", strings.Replace(got[0].Key.String(), "t:z", "tenant:z", 1))
}

func TestMatchAllocatesNothing(t *testing.T) {
	s := set(t, "", `id: free, match: {plan: free}, key: [apiKey], hashTag: tenant, onMissingKey: deny`, `id: login, match: {route: "POST /x"}, key: [ip, username], normalize: lower`)
	v := s.View(nil)
	var a policy.Attributes
	var dst []policy.Hit
	entries := [][2][]byte{}
	for _, e := range [][2]string{{"plan", "free"}, {"api_key", "secret"}, {"tenant", "acme"}, {"remote_address", "2001:db8::1"}, {"username", "Alice"}, {"method", "POST"}, {"path", "//x"}} {
		entries = append(entries, [2][]byte{[]byte(e[0]), []byte(e[1])})
	}
	n := testing.AllocsPerRun(100, func() {
		a.Reset(v)
		for g, e := range entries {
			a.Add(g, e[0], e[1])
		}
		dst = a.Match(dst[:0])
	})
	require.Len(t, dst, 2)
	require.Zero(t, n)
}
