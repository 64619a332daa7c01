package policylint_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policylint"
)

// gateway is a connection manager with settings, filters before the rate limit, and the actions of its descriptors.
func gateway(settings, filters string, actions ...string) string {
	var b strings.Builder
	b.WriteString("static_resources: {listeners: [{filter_chains: [{filters: [{typed_config: {\n")
	b.WriteString(`"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager, ` + settings + "\n")
	b.WriteString("http_filters: [" + filters + "\n" + `{typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: edge}}],` + "\n")
	b.WriteString("route_config: {virtual_hosts: [{rate_limits: [\n")
	for _, a := range actions {
		b.WriteString("{actions: [" + a + "]},\n")
	}
	b.WriteString("], request_headers_to_remove: [x-late]}]}}}]}]}]}\n")
	return b.String()
}

const (
	peer   = "{remote_address: {}}"
	tenant = "{request_headers: {header_name: X-Tenant, descriptor_key: tenant}}"
	key    = "{request_headers: {header_name: x-api-key, descriptor_key: api_key}}"
	route  = "{generic_key: {descriptor_key: route, descriptor_value: GET /x}}"

	trusting = "use_remote_address: true,"
	early    = `early_header_mutation_extensions: [{typed_config: {mutations: [`
)

func filter(kind, fields string) string {
	return `{name: f, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.` + kind + ", " + fields + "}},"
}

func TestEnvoy(t *testing.T) {
	byTenant := "domain: edge\n" + one("id: a, key: [tenant]")
	tests := []struct {
		name      string
		rule      policylint.Rule
		policies  string
		hit, miss string
		want      string
	}{
		{
			"nothing gives a key", policylint.NotFed, byTenant, gateway(trusting, "", peer), gateway(trusting, "", tenant),
			"p.yaml:3:17: warning[not-fed]: policy a needs tenant, and no descriptor gives it",
		},
		{
			"a name that is nearly given", policylint.NotFed, "domain: edge\n" + one("id: a, match: {tennant: x}, key: [ip]"), gateway(trusting, "", peer, tenant),
			gateway(trusting, "", peer, "{metadata: {descriptor_key: tennant, metadata_key: {key: k}}}"), `(did you mean "tenant"?)`,
		},
		{
			"a part of a route is missing", policylint.NotFed, "domain: edge\n" + one(`id: a, match: {route: "GET /x"}, key: [ip]`),
			gateway(trusting, "", peer, `{request_headers: {header_name: ":path", descriptor_key: path}}`),
			gateway(trusting, "", peer, `{request_headers: {header_name: ":path", descriptor_key: path}}, {request_headers: {header_name: ":method", descriptor_key: method}}`),
			"needs route, which is composed of method and path, and no descriptor gives method",
		},
		{
			"another fixed value", policylint.NotFed, "domain: edge\n" + one(`id: a, match: {route: "GET /y"}, key: [ip]`), gateway(trusting, "", peer, route),
			gateway(trusting, "", peer, route, "{generic_key: {descriptor_key: route, descriptor_value: GET /y}}"), `the only values of route are ["GET /x"]`,
		},
		{
			"another domain", policylint.NotFed, "domain: edg\n" + one("id: a, key: [ip]"), gateway(trusting, "", peer), gateway(trusting, "", "{x: {}}"),
			`no rate limit filter has that (did you mean "edge"?)`,
		},
		{
			"the client's word for its tenant", policylint.Spoofable, byTenant, gateway(trusting, "", tenant), gateway(trusting+early+"{remove: x-tenant}]}}],", "", tenant),
			"e.yaml:6:13: warning[spoofable]: tenant is what the client writes into header x-tenant",
		},
		{
			"removed by the route, too late", policylint.Spoofable, byTenant, gateway(trusting, "", "{request_headers: {header_name: x-late, descriptor_key: tenant}}"),
			gateway(trusting+early+`{remove_on_match: {key_matcher: {prefix: X-}}}]}}],`, "", tenant), "request_headers_to_remove acts when the service has been asked already",
		},
		{
			"another header is removed", policylint.Spoofable, byTenant, gateway(trusting+early+"{remove: x-tenants}]}}],", "", tenant),
			gateway(trusting, filter("jwt_authn.v3.JwtAuthentication", "providers: {p: {claim_to_headers: [{header_name: x-tenant, claim_name: t}]}}"), tenant), "nothing removes or sets it",
		},
		{
			"set where there is none yet", policylint.Spoofable, byTenant,
			gateway(trusting, filter("header_mutation.v3.HeaderMutation", "mutations: {request_mutations: [{append: {header: {key: x-tenant, value: a}, append_action: ADD_IF_ABSENT}}]}"), tenant),
			gateway(trusting, filter("header_mutation.v3.HeaderMutation", "mutations: {request_mutations: [{append: {header: {key: x-tenant, value: a}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}}]}"), tenant),
			"nothing removes or sets it",
		},
		{
			"a script that is about something else", policylint.Spoofable, byTenant,
			gateway(trusting, filter("lua.v3.Lua", `default_source_code: {inline_string: "x-other"}`), tenant),
			gateway(trusting, filter("lua.v3.Lua", `default_source_code: {inline_string: "x-tenant"}`), tenant), "nothing removes or sets it",
		},
		{
			"keys that nobody checks", policylint.Spoofable, "domain: edge\n" + one("id: a, key: [apiKey]"), gateway(trusting, "", key),
			gateway(trusting, filter("api_key_auth.v3.ApiKeyAuth", "key_sources: [{header: X-Api-Key}]"), key), "a client that invents keys has a new bucket with each",
		},
		{
			"x-forwarded-for is believed", policylint.Spoofable, "domain: edge\n" + one("id: a, key: [ip]"), gateway("", "", peer), gateway(trusting, "", peer),
			"ip is what the client writes into x-forwarded-for",
		},
		{
			"a raw path", policylint.RawPath, "domain: edge\n" + one("id: a, match: {uri: /x}, key: [ip]"),
			gateway(trusting, "", peer, `{request_headers: {header_name: ":path", descriptor_key: uri}}`),
			gateway(trusting, "", peer, `{request_headers: {header_name: ":authority", descriptor_key: uri}}`), "policy a matches uri, the raw path of :path",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "another domain" {
				tt.miss = strings.Replace(gateway(trusting, "", peer), "domain: edge", "domain: edg", 1)
			}
			hits := found(t, policylint.Options{Policies: text("p.yaml", tt.policies), Envoy: text("e.yaml", tt.hit)}, tt.rule, policylint.Warning)
			require.Len(t, hits, 1)
			require.Contains(t, hits[0].Error(), tt.want)
			require.Empty(t, found(t, policylint.Options{Policies: text("p.yaml", tt.policies), Envoy: text("e.yaml", tt.miss)}, tt.rule, policylint.Warning), "the near miss")
		})
	}
}

func TestScriptsAreNotes(t *testing.T) {
	o := policylint.Options{Policies: text("p.yaml", one("id: a, key: [tenant]")), Envoy: text("e.yaml", gateway(trusting, filter("ext_authz.v3.ExtAuthz", "x: 1"), tenant))}
	notes := found(t, o, policylint.Spoofable, policylint.Note)
	require.Len(t, notes, 1)
	require.Contains(t, notes[0].Error(), "whether the ext_authz filter in line 3 sets or checks it for every request cannot be told from here")
}

// Routes from a server are not known: nothing is said about what they don't give.
func TestRoutesFromElsewhere(t *testing.T) {
	config := strings.Replace(gateway(trusting, "", peer), "route_config:", "rds: {route_config_name: r}, x:", 1)
	o := policylint.Options{Policies: text("p.yaml", one("id: a, key: [tenant]")), Envoy: text("e.yaml", config)}
	require.Empty(t, found(t, o, policylint.NotFed, policylint.Warning))
	routes := "virtual_hosts: [{rate_limits: [{actions: [" + tenant + "]}]}]\n"
	o.Envoy = append(o.Envoy, text("r.yaml", routes)...)
	hits := found(t, o, policylint.Spoofable, policylint.Warning)
	require.Len(t, hits, 1, "routes in a file of their own")
	require.Equal(t, "r.yaml", hits[0].Fault.Pos.File)
}

// TestShipped: the files that come with the project have one warning, which is meant: Envoy sends no model.
func TestShipped(t *testing.T) {
	policies, err := policy.Read("../../config/policies.yaml")
	require.NoError(t, err)
	config, err := policy.Read("../../envoy/envoy.yaml")
	require.NoError(t, err)
	all, err := policylint.Lint(policylint.Options{Policies: policies, Envoy: config, Instances: 3})
	require.NoError(t, err)
	for _, f := range all {
		if f.Severity == policylint.Warning {
			require.Contains(t, f.Error(), "policy model-tokens needs model")
		}
	}
}
