package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// directory writes files by name into a fresh directory.
func directory(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	return dir
}

func filed(fields string) string { return "policies:\n  - {" + fields + tail }

func TestFaultsBetweenFiles(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{
			"one id twice",
			map[string]string{"a.yaml": filed("id: p, key: [ip]"), "b.yaml": filed("id: p, key: [tenant]")},
			[]string{`b.yaml:2:10: two policies have the id "p" (first at DIR/a.yaml:2:10)`},
		},
		{
			"one entry, two attributes",
			map[string]string{"a.yaml": "attributes: {x: tenant}\n" + filed("id: p, key: [tenant]"), "b.yaml": "attributes: {x: user}\n" + filed("id: q, key: [user]")},
			[]string{`b.yaml:1:14: attribute "x" is already given another meaning at DIR/a.yaml:1:14`},
		},
		{
			"two prefixes",
			map[string]string{"a.yaml": "ipv6Prefix: 56\n" + filed("id: p, key: [ip]"), "b.yaml": "ipv6Prefix: 64\n" + filed("id: q, key: [ip]")},
			[]string{`b.yaml:1:13: ipv6Prefix 64 differs from the 56 at DIR/a.yaml:1:13: all files of a set must agree`},
		},
		{
			"composed of what is composed",
			map[string]string{"a.yaml": "attributes: {a: '{route}-{b}'}\n" + filed("id: p, key: [a]")},
			[]string{`a.yaml:1:14: attribute "a" is composed of "route", which is composed itself: name its parts here`},
		},
		{
			"no address",
			map[string]string{"a.yaml": filed("id: p, match: {ip: [203.0.113.7, here]}, key: [ip]")},
			[]string{`"here" is not a value that ip can have`},
		},
		{
			"prefix of a hash",
			map[string]string{"a.yaml": filed(`id: p, match: {apiKey: "sec*"}, key: [ip]`)},
			[]string{`apiKey cannot be matched by a prefix`},
		},
		{
			"keys too long",
			map[string]string{"a.yaml": filed("id: p, key: [a, b, c, d, e, f, g, h]")},
			[]string{`the keys of policy "p" could take`, "more than the 512 allowed"},
		},
		{
			"a file's own fault beside one between files",
			map[string]string{"a.yaml": filed("id: p, key: [ip], capcity: 1"), "b.yaml": filed("id: p, match: {ip: x}, key: [ip]")},
			[]string{`no field "capcity"`, `two policies have the id "p"`, `"x" is not a value`},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := directory(t, tt.files)
			_, err := policy.Load(dir)
			require.Error(t, err)
			for _, want := range tt.want {
				require.ErrorContains(t, err, strings.ReplaceAll(want, "DIR", dir))
			}
			require.Equal(t, strings.Count(err.Error(), "^"), strings.Count(err.Error(), dir)-strings.Count(err.Error(), "at "+dir), "a caret for each fault:\n%s", err)
		})
	}
}

func TestDomains(t *testing.T) {
	dir := directory(t, map[string]string{
		"1-all.yaml":   "attributes: {x-any: tenant}\n" + filed("id: all, key: [tenant]"),
		"2-edge.yaml":  "domain: edge\nattributes: {x-edge: tenant}\n" + filed("id: edge, key: [tenant]"),
		"3-inner.yaml": "domain: inner\nattributes: {x-edge: user}\n" + filed("id: inner, key: [user]"),
		"4-edge.yaml":  "domain: edge\n" + filed("id: more, key: [tenant]"),
	})
	s, err := policy.Load(dir)
	require.NoError(t, err)
	require.Equal(t, []string{"edge", "inner"}, s.Domains())
	require.Len(t, s.Policies(), 4)
	ids := func(domain, descriptors string) (list []string) {
		var a policy.Attributes
		add(&a, s.View([]byte(domain)), descriptors)
		for _, h := range a.Match(nil) {
			if h.Missing == "" {
				list = append(list, h.Key.String())
			}
		}
		return list
	}
	require.Equal(t, []string{"rl:{t:a}:all", "rl:{t:a}:edge", "rl:{t:a}:more"}, ids("edge", "x-edge=a"))
	require.Equal(t, []string{"rl:{user:a}:inner"}, ids("inner", "x-edge=a"), "one entry key may mean another thing in another domain")
	require.Equal(t, []string{"rl:{t:a}:all"}, ids("elsewhere", "x-any=a"))
	require.Nil(t, ids("elsewhere", "x-edge=a"))
	require.True(t, s.View([]byte("elsewhere")).Known(), "a file without domain serves every one")

	only, err := policy.Load(filepath.Join(dir, "2-edge.yaml"))
	require.NoError(t, err)
	require.False(t, only.View([]byte("elsewhere")).Known())
}

func TestVersionFollowsContent(t *testing.T) {
	version := func(text string) string {
		s, err := policy.Load(directory(t, map[string]string{"p.yaml": text}))
		require.NoError(t, err)
		return s.Version()
	}
	a := version(filed("id: p, key: [ip]"))
	require.Regexp(t, "^[0-9a-f]{12}$", a)
	require.Equal(t, a, version(filed("id: p, key: [ip]")), "wherever it is read from")
	require.NotEqual(t, a, version(filed("id: p, key: [ip]")+"# a word\n"))
}

func TestNumbersAreNumbered(t *testing.T) {
	s, err := policy.Load(filepath.Join("..", "..", "config", "policies.yaml"))
	require.NoError(t, err)
	for i, n := range s.Numbers() {
		require.Equal(t, i, n.Index)
	}
	for i, p := range s.Policies() {
		require.Equal(t, i, p.Index)
		require.Same(t, &p.Numbers, s.Numbers()[p.Numbers.Index])
	}
}

func TestExplain(t *testing.T) {
	s := set(t, "", `id: free, match: {plan: free}, key: [apiKey]`, `id: pro, match: {plan: [pro, max], region: absent}, key: [apiKey]`, `id: pair, match: {plan: free, zone: a}, key: [ip]`)
	var a policy.Attributes
	add(&a, s.View(nil), "plan=free,region=eu;zone=a;zone=b,plan=gold")
	all := a.Explain()
	require.Len(t, all, 3)
	require.Equal(t, "apiKey", all[0].Hits[0].Missing)
	require.Empty(t, all[0].Unmet)
	require.Equal(t, []string{"free", "gold"}, all[1].Unmet[0].Got)
	require.Equal(t, "region", all[1].Unmet[1].Condition.Attribute)
	require.Empty(t, all[2].Hits, "no descriptor holds both")
	require.Len(t, all[2].Unmet, 2)
	require.Contains(t, a.Facts(), policy.Fact{Attribute: "zone", Value: "b"})
}
