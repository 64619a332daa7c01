package policy_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// faultOf loads files and gives the only fault as "file:line:column: message (hint)"; empty: there is none.
func faultOf(t *testing.T, files map[string]string) string {
	t.Helper()
	_, err := policy.Load(directory(t, files))
	if err == nil {
		return ""
	}
	var faults policy.Faults
	require.ErrorAs(t, err, &faults)
	require.Len(t, faults, 1, "%v", err)
	require.NotZero(t, faults[0].Pos.Line)
	return faults[0].Message + " (" + faults[0].Hint + ")"
}

// The key of an entry that gives another attribute is never an attribute by itself.
func TestNamesThatNoAttributeHas(t *testing.T) {
	const other = ", onMissingKey: skip"
	tests := []struct {
		name, head, fields, want string
	}{
		{"key", "", "key: [api_key]", "key api_key: entries api_key give attribute apiKey (write apiKey)"},
		{"header", "", "key: [x-api-key]", "key x-api-key: entries x-api-key give attribute apiKey (write apiKey)"},
		{"second of a key", "", "key: [tenant, remote_address]", "key remote_address: entries remote_address give attribute ip (write ip)"},
		{"hash tag", "", "key: [ip], hashTag: masked_remote_address" + other, "hashTag masked_remote_address: entries masked_remote_address give attribute ip (write ip)"},
		{"match", "", "key: [ip], match: {api_key: k1}", "match api_key: entries api_key give attribute apiKey (write apiKey)"},
		{"match of an override", "", "key: [api_key], overrides: [{match: {apiKey: k1}, capacity: 1, comment: c}]", ""},
		{"renamed by the file", "attributes: {x-customer: tenant}", "key: [x-customer]", "key x-customer: entries x-customer give attribute tenant (write tenant)"},
		{"kept by the file", "attributes: {api_key: api_key}", "key: [api_key]", ""},
		{"given by another entry", "attributes: {x-user: username, username: login}", "key: [username, login]", ""},
		{"composed as well", "attributes: {x-user: username, who: '{x-user}/{tenant}'}", "key: [who]", "the template of who needs x-user: entries x-user give attribute username (write username)"},
		{"renamed to an entry", "attributes: {x-key: api_key}", "key: [ip]", "attribute api_key: entries api_key give attribute apiKey (write apiKey)"},
		{"composed under an entry's name", "attributes: {api_key: '{tenant}-{plan}'}", "key: [ip]", "attribute api_key: entries api_key give attribute apiKey (write apiKey)"},
		{"letter case", "", "key: [apikey]", "there is no attribute apikey: letter case matters (write apiKey)"},
		{"letter case in match", "", "key: [ip], match: {Tenant: acme}", "there is no attribute Tenant: letter case matters (write tenant)"},
		{"letter case in a template", "attributes: {who: '{METHOD}'}", "key: [who]", "there is no attribute METHOD: letter case matters (write method)"},
		{"letter case of a header", "attributes: {Tenant: tenant}", "key: [tenant]", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.head + "\n" + filed("id: p, "+tt.fields)
			if tt.name == "match of an override" {
				_, err := policy.Load(directory(t, map[string]string{"a.yaml": text}))
				require.ErrorContains(t, err, "key api_key: entries api_key give attribute apiKey")
				return
			}
			require.Equal(t, tt.want, faultOf(t, map[string]string{"a.yaml": text}))
		})
	}
}

// The tables of all files of a domain count, and no others.
func TestNamesAcrossFiles(t *testing.T) {
	const table = "attributes: {x-customer: tenant}\n"
	const want = "key x-customer: entries x-customer give attribute tenant (write tenant)"
	tests := []struct {
		name string
		a, b string // the heads of two files; b has the policy
		want string
	}{
		{"one domain", "domain: edge\n" + table, "domain: edge\n", want},
		{"every domain", table, "domain: edge\n", want},
		{"a policy of every domain", "domain: edge\n" + table, "", want},
		{"another domain", "domain: core\n" + table, "domain: edge\n", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, faultOf(t, map[string]string{
				"a.yaml": tt.a + "policies: []\n", "b.yaml": tt.b + filed("id: p, key: [x-customer]"),
			}))
		})
	}
}

func TestFormsOfValues(t *testing.T) {
	const form = `is not of the form "METHOD /path"`
	const network, apart = "ip compares one client: an address, not a network such as ", " (to match networks, have Envoy send an attribute that tells them apart)"
	tests := []struct{ name, head, match, want string }{
		{"route", "", `route: "GET /v1/items"`, ""},
		{"routes", "", `route: ["GET /v1/items", "M-SEARCH /"]`, ""},
		{"prefix", "", `route: "GET /v1/*"`, ""},
		{"prefix amid a segment", "", `route: "GET /.w*"`, ""},
		{"prefix that is a dot", "", `route: "GET /v1/.*"`, ""},
		{"any route", "", `route: "*"`, ""},
		{"no method", "", `route: /auth/login`, `route "/auth/login" ` + form + ` (write "GET /auth/login", or match path for every method)`},
		{"no method in a prefix", "", `route: "/v1/*"`, `route "/v1/*" ` + form + ` (write "GET /v1/*", or match path for every method)`},
		{"no path", "", `route: login`, `route "login" ` + form + ` (write a method in capitals, a space and a path, as in "GET /v1/items")`},
		{"small method", "", `route: "post /auth/login"`, `route "post /auth/login" ` + form + ` (write "POST /auth/login")`},
		{"small method in a prefix", "", `route: "get /v1/*"`, `route "get /v1/*" ` + form + ` (write "GET /v1/*")`},
		{"every path", "", `route: "GET *"`, `route "GET *" ` + form + ` (write "GET /*")`},
		{"second of a list", "", `route: ["GET /a", "GET b"]`, `route "GET b" ` + form + ` (write a method in capitals, a space and a path, as in "GET /v1/items")`},
		{"double slash", "", `route: "GET //v1/*"`, `route "GET //v1/*" is not how paths are compared (write "GET /v1/*")`},
		{"dot segment", "", `route: "GET /a/../v1/*"`, `route "GET /a/../v1/*" is not how paths are compared (write "GET /v1/*")`},
		{"escape", "", `route: "GET /%7ea/*"`, `route "GET /%7ea/*" is not how paths are compared (write "GET /~a/*")`},
		{"exact in another notation", "", `route: "GET //v1/%7ea"`, ""},
		{"query", "", `route: "GET /search?q=1"`, `route "GET /search?q=1" has a query string or fragment, which paths are compared without (write "GET /search")`},
		{"query in a prefix", "", `route: "GET /search?*"`, `route "GET /search?*" has a query string or fragment, which paths are compared without (write "GET /search")`},
		{"own template", "attributes: {route: '{host}{path}'}\n", `route: example.com/v1`, ""},
		{"own entry", "attributes: {x-route: route}\n", `route: login`, ""},
		{"as it is by default", "attributes: {route: '{method} {path}'}\n", `route: "GET v1"`, `route "GET v1" ` + form + ` (write a method in capitals, a space and a path, as in "GET /v1/items")`},
		{"path", "", `path: "/v1/*"`, ""},
		{"path without slash", "", `path: "v1/*"`, `path "v1/*" does not begin with a slash (write "/v1/*")`},
		{"path with two", "", `path: "//v1/*"`, `path "//v1/*" is not how paths are compared (write "/v1/*")`},
		{"inner star", "", `route: "GET /v1/*/items"`, "a star stands only at the end of a value (to take a value literally write a list of one: route: [\"…\"])"},
		{"two stars", "", `plan: "free**"`, "a star stands only at the end of a value (to take a value literally write a list of one: plan: [\"…\"])"},
		{"star in front", "", `plan: "*enterprise"`, "a star stands only at the end of a value (to take a value literally write a list of one: plan: [\"…\"])"},
		{"star in a list", "", `plan: ["a*b", c]`, "a star stands only at the end of a value (to take a value literally write a list of one: plan: [\"…\"])"},
		{"star in a key", "", `apiKey: "s3c*ret"`, "a star stands only at the end of a value (to take a value literally write a list of one: apiKey: [\"…\"])"},
		{"literal star", "", `route: ["GET /v1/*/items"]`, ""},
		{"address", "", `ip: 203.0.113.7`, ""},
		{"client of IPv6", "", `ip: "2001:db8:1:2::/64"`, ""},
		{"address of IPv6", "", `ip: "2001:db8:1:2::9"`, ""},
		{"client by ipv6Prefix", "ipv6Prefix: 56\n", `ip: "2001:db8:1:200::/56"`, ""},
		{"network", "", `ip: 10.0.0.0/8`, network + "10.0.0.0/8" + apart},
		{"network in a list", "", `ip: [203.0.113.7, 10.0.0.0/8]`, network + "10.0.0.0/8" + apart},
		{"network of IPv6", "", `ip: "2001:db8::/32"`, network + "2001:db8::/32" + apart},
		{"part of a client", "", `ip: "2001:db8::/96"`, network + "2001:db8::/96 (write 2001:db8::/64)"},
		{"not by ipv6Prefix", "ipv6Prefix: 56\n", `ip: "2001:db8::/48"`, network + "2001:db8::/48" + apart},
		{"one address as a network", "", `ip: 203.0.113.7/32`, network + "203.0.113.7/32 (write 203.0.113.7)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.head + filed("id: p, match: {"+tt.match+"}, key: [ip]")
			require.Equal(t, tt.want, faultOf(t, map[string]string{"a.yaml": text}))
		})
	}
	t.Run("in an override", func(t *testing.T) {
		text := filed("id: p, key: [ip], overrides: [{match: {ip: 10.0.0.0/8}, capacity: 1, comment: c}]")
		require.Equal(t, network+"10.0.0.0/8"+apart, faultOf(t, map[string]string{"a.yaml": text}))
	})
}

// What a request's route is compared as can be written in a policy, whole and as a prefix.
func TestCanonicalRoutesCanBeWritten(t *testing.T) {
	s := set(t, "", `id: p, key: [route]`)
	rapid.Check(t, func(t *rapid.T) {
		raw := "GET /" + rapid.StringMatching(`[a-z./?#%~0-9A-F]{0,12}`).Draw(t, "path")
		var a policy.Attributes
		add(&a, s.View(nil), "route="+raw)
		route := a.Facts()[0].Value
		for _, value := range []string{route, route + "*"} {
			file, err := policy.Parse("a.yaml", fmt.Appendf(nil, "policies:\n  - {id: p, match: {route: %q}, key: [ip]%s", value, tail))
			require.NoError(t, err)
			_, err = policy.NewSet([]*policy.File{file})
			require.NoError(t, err)
		}
	})
}
