package deploy_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	hcm "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/e2e/upstream"
	"github.com/envoy-rls/envoy-rls/internal/testcerts"
)

// mesh is a proxy of Istio's, patched by EnvoyFilters, with the real service behind and an upstream.
type mesh struct {
	service *harness.Instance
	url     string // of the proxy
	certs   *testcerts.Authority
}

// patched gives the configuration of a proxy after the EnvoyFilters of a tree, or why they do not fit it.
func patched(tree, name, certs string, moved places) (proxy, error) {
	p, err := readProxy(map[string]string{"gateway": "gateway", "mesh": "sidecar"}[name], certs, moved)
	if err != nil {
		return p, err
	}
	filters, err := envoyFilters(filepath.Join(tree, "istio", name))
	if err != nil {
		return p, err
	}
	for _, f := range filters {
		if err := p.apply(f); err != nil {
			return p, err
		}
	}
	return p, p.fits(tree)
}

// fits tells whether the patched proxy calls what the manifests of a tree install.
func (p proxy) fits(tree string) error {
	m, err := render(tree, "redis")
	if err != nil {
		return err
	}
	c, err := p.service()
	if err != nil {
		return err
	}
	host := fmt.Sprintf("%s.%s.svc.cluster.local", m.Service.Metadata.Name, m.Service.Metadata.Namespace)
	at := endpoint(c).GetSocketAddress()
	if at.Address != host || int(at.GetPortValue()) != m.servicePort("grpc") {
		return fmt.Errorf("envoy_rls is at %s:%d, and the Service at %s:%d", at.Address, at.GetPortValue(), host, m.servicePort("grpc"))
	}
	if c.GetType().String() != "STRICT_DNS" || len(c.HealthChecks) != 1 {
		return errors.New("envoy_rls does not ask for each pod whether it is well")
	}
	known, err := flags()
	if err != nil {
		return err
	}
	drain, err := time.ParseDuration(m.setting(known, "ENVOY_RLS_DRAIN_DELAY"))
	check := c.HealthChecks[0]
	noticed := (check.Interval.AsDuration() + check.IntervalJitter.AsDuration() + check.Timeout.AsDuration()) * time.Duration(check.UnhealthyThreshold.GetValue())
	if err == nil && noticed >= drain {
		err = fmt.Errorf("it takes %s to notice a pod that drains for %s", noticed, drain)
	}
	return err
}

// patient makes the rate limit filters wait for the service as long as even a busy machine takes. The shipped 20 ms would now and then mean that a
// request is let through unasked.
func (p proxy) patient() error {
	_, err := p.eachManager(nil, func(m *hcm.HttpConnectionManager) (bool, error) {
		for _, f := range m.HttpFilters {
			filter := &ratelimit.RateLimit{}
			if !f.GetTypedConfig().MessageIs(filter) {
				continue
			}
			if err := f.GetTypedConfig().UnmarshalTo(filter); err != nil {
				return false, err
			}
			filter.Timeout.Seconds, filter.RateLimitService.GrpcService.Timeout.Seconds = 5, 5
			filter.RateLimitService.GrpcService.RetryPolicy.RetryBackOff.MaxInterval.Seconds = 5
			if err := f.GetTypedConfig().MarshalFrom(filter); err != nil {
				return false, err
			}
		}
		return true, nil
	})
	return err
}

// startMesh starts all with the EnvoyFilters of a tree, and the policies of the manifests, changed by edit.
func startMesh(t *testing.T, tree, name string, edit *strings.Replacer) *mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	dir := t.TempDir()
	authority, err := testcerts.New("cluster.local")
	require.NoError(t, err)
	own, err := authority.Issue(testcerts.Leaf{Name: "reviews", URI: "spiffe://cluster.local/ns/default/sa/reviews"})
	require.NoError(t, err)
	require.NoError(t, own.Write(filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")))
	require.NoError(t, testcerts.Replace(filepath.Join(dir, "ca.pem"), authority.PEM))

	m := &mesh{certs: authority, service: startPolicies(t, ctx, tree, edit)}
	ports := places{}
	for _, documented := range []uint32{8080, 9000, 9080, 15000} {
		free, err := harness.FreePort()
		require.NoError(t, err)
		ports[documented] = uint32(free)
	}
	startUpstream(t, ports[9000])
	p, err := patched(tree, name, dir, ports)
	require.NoError(t, err)
	require.NoError(t, p.patient())
	c, err := p.service()
	require.NoError(t, err)
	grpc, err := strconv.ParseUint(port(m.service.GRPC), 10, 16)
	require.NoError(t, err)
	at := endpoint(c).GetSocketAddress()
	at.Address = "127.0.0.1"
	move(places{at.GetPortValue(): uint32(grpc)}, endpoint(c))
	startEnvoy(t, ctx, p, dir, ports[15000])
	m.url = fmt.Sprintf("127.0.0.1:%d", ports[map[string]uint32{"gateway": 8080, "mesh": 9080}[name]])
	return m
}

// startPolicies starts the service with the policies of the manifests.
func startPolicies(t *testing.T, ctx context.Context, tree string, edit *strings.Replacer) *harness.Instance {
	t.Helper()
	manifests, err := render(tree, "embedded")
	require.NoError(t, err)
	dir := t.TempDir()
	for name, text := range manifests.ConfigMaps["envoy-rls-policies"] {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(edit.Replace(text)), 0o600))
	}
	i, err := harness.StartInstance(ctx, programs.service, []string{"serve", "--policies", dir, "--drain-delay", "0s"}, nil)
	require.NoError(t, err)
	t.Cleanup(i.Stop)
	return i
}

func startUpstream(t *testing.T, port uint32) {
	t.Helper()
	server := &http.Server{Addr: fmt.Sprintf("127.0.0.1:%d", port), Handler: &upstream.Server{}, ReadHeaderTimeout: patience}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	t.Cleanup(func() {
		_ = server.Close()
		require.ErrorIs(t, <-served, http.ErrServerClosed)
	})
}

// startEnvoy starts Envoy and returns when it is ready and has found the service well.
func startEnvoy(t *testing.T, ctx context.Context, p proxy, dir string, admin uint32) {
	t.Helper()
	config, err := p.write(dir)
	require.NoError(t, err)
	cmd := exec.Command(programs.envoy, "--config-path", config, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	envoy, err := harness.StartProcess("envoy", cmd, nil)
	require.NoError(t, err)
	t.Cleanup(func() { envoy.Stop(10 * time.Second) })
	err = harness.Until(ctx, "Envoy to find the service", func() error {
		stats, err := harness.Get(ctx, fmt.Sprintf("http://127.0.0.1:%d/stats?filter=cluster.envoy_rls.membership_healthy", admin))
		if err == nil && !strings.Contains(stats, "membership_healthy: 1\n") {
			err = errors.New(stats)
		}
		return err
	}, envoy)
	require.NoError(t, err)
}

// call is a request through the proxy.
type call struct {
	method, host, path string
	header             map[string]string
	as                 string // the identity of the caller; empty: without a certificate
}

// do sends a call on a connection of its own and gives the answer, read to its end.
func (m *mesh) do(t *testing.T, c call) *http.Response {
	t.Helper()
	scheme, transport := "http", &http.Transport{DisableKeepAlives: true}
	if c.as != "" {
		pair, err := m.certs.Issue(testcerts.Leaf{Name: "caller", URI: c.as})
		require.NoError(t, err)
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		require.NoError(t, err)
		roots := x509.NewCertPool()
		require.True(t, roots.AppendCertsFromPEM(m.certs.PEM))
		scheme, transport.TLSClientConfig = "https", &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: roots}
	}
	request, err := http.NewRequestWithContext(t.Context(), c.method, scheme+"://"+m.url+c.path, nil)
	require.NoError(t, err)
	request.Host = c.host
	for name, value := range c.header {
		request.Header.Set(name, value)
	}
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	_, err = io.Copy(io.Discard, response.Body)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response
}

// admitted sends the same call until it is denied, at the most so often, and gives how many were not.
func (m *mesh) admitted(t *testing.T, most int, c call) (int, *http.Response) {
	t.Helper()
	for n := range most {
		if response := m.do(t, c); response.StatusCode != http.StatusOK {
			return n, response
		}
	}
	return most, nil
}

// counted is a counter of the service.
func (m *mesh) counted(t *testing.T, metric string, labels ...string) float64 {
	t.Helper()
	sum, err := m.service.Sum(t.Context(), metric, labels...)
	require.NoError(t, err)
	return sum
}

// slow makes the policies of the manifests refill so slowly that a busy machine does not matter.
func slow() *strings.Replacer {
	return strings.NewReplacer("refillPerMinute: 100\n", "refillPerDay: 1\n", "window: 60s", "window: 1d",
		"capacity: 200\n", "capacity: 5\n", "refillPerSecond: 200\n", "refillPerDay: 1\n")
}

func TestGatewayIsLimited(t *testing.T) {
	m := startMesh(t, root+"/deploy", "gateway", slow())
	free := call{method: "GET", host: "shop.example.com", path: "/", header: map[string]string{"token-plan": "free", "token-tenant": "acme"}}
	n, denied := m.admitted(t, 40, free)
	require.Equal(t, 20, n, "the plan's capacity")
	require.Equal(t, http.StatusTooManyRequests, denied.StatusCode)
	require.Equal(t, "application/problem+json", denied.Header.Get("Content-Type"))
	require.NotEmpty(t, denied.Header.Get("Retry-After"))
	require.Contains(t, denied.Header.Get("RateLimit"), `"free";r=0`)

	free.header["token-tenant"] = "other"
	require.Equal(t, http.StatusOK, m.do(t, free).StatusCode, "another tenant")
	free.host, free.header["token-tenant"] = "other.example.com", "acme"
	require.Equal(t, http.StatusTooManyRequests, m.do(t, free).StatusCode, "another host")
	claimed := call{method: "GET", host: "shop.example.com", path: "/", header: map[string]string{"x-plan": "free", "x-tenant": "acme"}}
	require.Equal(t, http.StatusOK, m.do(t, claimed).StatusCode, "what a client claims to be does not count")
	claimed.header = map[string]string{"token-plan": "free", "x-tenant": "victim"}
	require.Equal(t, http.StatusTooManyRequests, m.do(t, claimed).StatusCode, "nor does a part of it: a tenant is missing")

	login := call{method: "POST", host: "shop.example.com", path: "/auth/login"}
	n, denied = m.admitted(t, 20, login)
	require.Equal(t, 10, n, "the limit of logins")
	require.Equal(t, http.StatusTooManyRequests, denied.StatusCode)

	m.service.Process.Stop(patience)
	require.Equal(t, http.StatusOK, m.do(t, free).StatusCode, "without the service, requests are let through")
	require.Equal(t, http.StatusServiceUnavailable, m.do(t, login).StatusCode, "without the service, logins are not")
}

func TestMeshIsLimited(t *testing.T) {
	m := startMesh(t, root+"/deploy", "mesh", slow())
	unmatched := m.counted(t, "envoy_rls_unmatched_descriptors_total") // the harness' own calls
	checkout := call{method: "GET", host: "reviews", path: "/", as: "spiffe://cluster.local/ns/shop/sa/checkout"}
	n, denied := m.admitted(t, 20, checkout)
	require.Equal(t, 5, n, "the capacity of a caller")
	require.Equal(t, http.StatusTooManyRequests, denied.StatusCode)
	require.Contains(t, denied.Header.Get("RateLimit"), `"mesh-caller";r=0`)

	other := checkout
	other.as = "spiffe://cluster.local/ns/shop/sa/search"
	require.Equal(t, http.StatusOK, m.do(t, other).StatusCode, "another caller")
	nobody := checkout
	nobody.as = ""
	n, _ = m.admitted(t, 8, nobody)
	require.Equal(t, 8, n, "without a certificate only the ceiling counts")
	require.EqualValues(t, 5+1+8, m.counted(t, "envoy_rls_charged_cost_total", `policy="service-ceiling"`))
	require.Equal(t, unmatched, m.counted(t, "envoy_rls_unmatched_descriptors_total"), "a descriptor that no policy reads")

	m.service.Process.Stop(patience)
	require.Equal(t, http.StatusOK, m.do(t, checkout).StatusCode, "without the service, calls are let through")
}
