package deploy_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An EnvoyFilter with a fault does not fit the proxy, or does not fit what the manifests install.
func TestPlantedFaultsInEnvoyFiltersAreFound(t *testing.T) {
	tests := []struct {
		name, file, old, fault string
		want                   string // part of the fault
	}{
		{"context", "gateway/filter.yaml", "context: GATEWAY", "context: SIDECAR_INBOUND", "matches nothing"},
		{"context of the mesh", "mesh/rate-limits.yaml", "context: SIDECAR_INBOUND", "context: GATEWAY", "matches nothing"},
		{"context that there is not", "mesh/filter.yaml", "context: SIDECAR_INBOUND", "context: SIDECAR", "SIDECAR"},
		{"name of the filter before which to insert", "mesh/filter.yaml", "subFilter: {name: envoy.filters.http.router}", "subFilter: {name: envoy.router}", "matches nothing"},
		{"name of the network filter", "mesh/filter.yaml", "name: envoy.filters.network.http_connection_manager", "name: envoy.http_connection_manager", "matches nothing"},
		{"name of the route", "gateway/rate-limits.yaml", "route: {name: login}", "route: {name: logins}", "matches nothing"},
		{"field of an EnvoyFilter", "gateway/rate-limits.yaml", "workloadSelector", "workloadSelectors", "workloadSelectors"},
		{"operation that there is not", "mesh/filter.yaml", "INSERT_BEFORE", "INSERT_AHEAD", "INSERT_AHEAD"},
		{"operation that is another", "mesh/filter.yaml", "operation: ADD", "operation: MERGE", "do not know"},
		{"field of a cluster", "gateway/filter.yaml", "lb_policy", "lb_policies", "lb_policies"},
		{"field of the rate limit filter", "gateway/filter.yaml", "failure_mode_deny: true", "failure_mode: true", "failure_mode"},
		{"field of a route", "gateway/rate-limits.yaml", "vh_rate_limits", "vhost_rate_limits", "vhost_rate_limits"},
		{"type of a filter", "mesh/filter.yaml", "ratelimit.v3.RateLimit\n", "ratelimit.v3.RateLimits\n", "RateLimits"},
		{"address of the service", "mesh/filter.yaml", "address: envoy-rls.envoy-rls.svc", "address: ratelimit.envoy-rls.svc", "and the Service at"},
		{"port of the service", "gateway/filter.yaml", "port_value: 8081", "port_value: 8080", "and the Service at"},
		{"health check slower than the drain", "mesh/filter.yaml", "interval: 3s", "interval: 5s", "to notice a pod"},
		{"no health check", "gateway/filter.yaml", "type: STRICT_DNS", "type: LOGICAL_DNS", "is well"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := tree(t)
			replace(t, filepath.Join(dir, "istio", test.file), test.old, test.fault)
			name, _, _ := strings.Cut(test.file, "/")
			_, err := patched(dir, name, "", nil)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// Faults that only requests show, each through the real Envoy: which of the checks above would fail.
func TestPlantedFaultsInEnvoyFiltersShow(t *testing.T) {
	onlyLong(t)
	free := call{method: "GET", host: "shop.example.com", path: "/", header: map[string]string{"token-plan": "free", "token-tenant": "acme"}}
	t.Run("rate limits of no host", func(t *testing.T) {
		dir := tree(t)
		replace(t, filepath.Join(dir, "istio/gateway/rate-limits.yaml"), "header_name: x-tenant", "header_name: tenant-x")
		m := startMesh(t, dir, "gateway", slow())
		require.Equal(t, http.StatusTooManyRequests, m.do(t, free).StatusCode, "onMissingKey denies")
	})
	t.Run("another domain", func(t *testing.T) {
		dir := tree(t)
		replace(t, filepath.Join(dir, "istio/mesh/filter.yaml"), "domain: mesh", "domain: mash")
		m := startMesh(t, dir, "mesh", slow())
		n, _ := m.admitted(t, 20, call{method: "GET", host: "reviews", path: "/", as: "spiffe://cluster.local/ns/shop/sa/checkout"})
		require.Equal(t, 20, n)
	})
	t.Run("identity that clients claim", func(t *testing.T) {
		dir := tree(t)
		replace(t, filepath.Join(dir, "istio/gateway/filter.yaml"), "- remove: x-tenant", "- remove: x-tenants")
		m := startMesh(t, dir, "gateway", slow())
		claimed := call{method: "GET", host: "shop.example.com", path: "/", header: map[string]string{"token-plan": "free", "x-tenant": "acme"}}
		require.Equal(t, http.StatusOK, m.do(t, claimed).StatusCode, "counted for the tenant that the client claims to be")
	})
	t.Run("login that fails open", func(t *testing.T) {
		dir := tree(t)
		replace(t, filepath.Join(dir, "istio/gateway/filter.yaml"), "failure_mode_deny: true", "failure_mode_deny: false")
		m := startMesh(t, dir, "gateway", slow())
		m.service.Process.Stop(patience)
		require.Equal(t, http.StatusOK, m.do(t, call{method: "POST", host: "shop.example.com", path: "/auth/login"}).StatusCode)
	})
}
