package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// paymentsFolder has the example, whose files are used as they are but for addresses and timeouts.
const paymentsFolder = "../examples/payments"

// payments is the example at work: an Envoy with envoy-rls, in front of three instances of the service, all with their counts in one Redis.
type payments struct {
	edge  string // host:port
	redis *redistest.Server
}

func startPayments(t *testing.T) *payments {
	t.Helper()
	p := &payments{redis: redistest.StartStandalone(t)}
	policies, err := os.ReadFile(filepath.Join(paymentsFolder, "gateway.yaml"))
	require.NoError(t, err)
	gateway := startFleet(t, fleetSetup{
		policies: string(policies), urls: []string{p.redis.URL()}, timeout: 3 * time.Second, args: []string{"--redis-mode", "standalone"},
	})
	program := filepath.Join(t.TempDir(), "payments")
	build := exec.Command("go", "build", "-buildvcs=false", "-o", program, ".")
	build.Dir = paymentsFolder
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)

	edits := []string{
		"{address: 127.0.0.1, port_value: 8081}", socketAddress(gateway.instances[0].GRPC),
		"timeout: 0.100s", "timeout: 5s", // a busy machine is slow to answer
	}
	for port := 9001; port <= 9003; port++ {
		edits = append(edits, fmt.Sprintf("{address: 127.0.0.1, port_value: %d}", port), socketAddress(p.startService(t, program)))
	}
	p.startEnvoy(t, edits)
	return p
}

func socketAddress(hostport string) string {
	host, port, _ := strings.Cut(hostport, ":")
	return fmt.Sprintf("{address: %s, port_value: %s}", host, port)
}

// startAnywhere starts a program that ends with the test on a free address, and returns that when the program is healthy. Another program may take
// the port before: then others are tried.
func startAnywhere(t *testing.T, name string, command func(address string) *exec.Cmd) (address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for try := 1; ; try++ {
		port, err := harness.FreePort()
		require.NoError(t, err)
		address = "127.0.0.1:" + strconv.Itoa(port)
		process, err := harness.StartProcess(name, command(address), nil)
		require.NoError(t, err)
		t.Cleanup(func() { process.Stop(patience) })
		err = harness.Until(ctx, name+" to be ready", func() error {
			_, err := harness.Get(ctx, "http://"+address+"/healthz")
			return err
		}, process)
		if err == nil {
			return address
		}
		require.True(t, try < 3 && portTaken(err.Error()), "%v", err)
	}
}

// startService starts an instance of the service that ends with the test.
func (p *payments) startService(t *testing.T, program string) (address string) {
	t.Helper()
	return startAnywhere(t, "payments", func(address string) *exec.Cmd {
		return exec.Command(program, "--listen", address, "--redis-url", p.redis.URL(), "--redis-timeout", "3s",
			"--policies", filepath.Join(paymentsFolder, "service.yaml"))
	})
}

// startEnvoy starts an Envoy that ends with the test, with the example's configuration and pairs of an old text and a new one. It has one worker:
// each has a turn of its own, and with two it would be luck which instances a few requests reach.
func (p *payments) startEnvoy(t *testing.T, edits []string) {
	t.Helper()
	shipped, err := os.ReadFile(filepath.Join(paymentsFolder, "envoy.yaml"))
	require.NoError(t, err)
	p.edge = startAnywhere(t, "envoy", func(address string) *exec.Cmd {
		edits := append(slices.Clone(edits), "{address: 127.0.0.1, port_value: 10000}", socketAddress(address))
		for i := 0; i < len(edits); i += 2 {
			require.Equal(t, 1, strings.Count(string(shipped), edits[i]), edits[i])
		}
		path := filepath.Join(t.TempDir(), "envoy.yaml")
		require.NoError(t, os.WriteFile(path, []byte(strings.NewReplacer(edits...).Replace(string(shipped))), 0o600))
		return exec.Command(binaries.envoy, "--config-path", path, "--disable-hot-restart", "--concurrency", "1", "--log-level", "warning")
	})
}

// pay is the request of a user who has the session, through an application with the API key.
func pay(key, user string) harness.Request {
	return harness.Request{Method: http.MethodPost, Target: "/payments", Header: []string{"x-api-key: " + key, "authorization: Bearer session-" + user}}
}

// do sends one request.
func (p *payments) do(t *testing.T, r harness.Request) *harness.Response {
	t.Helper()
	client := harness.Client{Addr: p.edge}
	defer client.Close()
	resp, err := client.Do(t.Context(), r)
	require.NoError(t, err)
	return resp
}

// list gives all lines of a field as the one list that they are.
func list(r *harness.Response, field string) string {
	return strings.Join(r.Header.Values(field), ", ")
}

// TestPayments has the gateway limit by API key and the service by user, on one Redis.
func TestPayments(t *testing.T) {
	t.Parallel()
	p := startPayments(t)
	const bothPolicies = `"payments-per-user";q=5;w=3600, "requests-per-key";q=300;w=60`

	t.Run("both policies show, once each", func(t *testing.T) {
		resp := p.do(t, pay("app-1", "ann"))
		require.Equal(t, http.StatusCreated, resp.Status, resp)
		require.Equal(t, bothPolicies, list(resp, "RateLimit-Policy"))
		require.Regexp(t, `^"payments-per-user";r=4;t=(3600|3599|35\d\d), "requests-per-key";r=299;t=60$`, list(resp, "RateLimit"))
	})
	t.Run("who is not logged in is told of the gateway's limit alone", func(t *testing.T) {
		resp := p.do(t, pay("app-1", "nobody"))
		require.Equal(t, http.StatusUnauthorized, resp.Status)
		require.Equal(t, `"requests-per-key";q=300;w=60`, list(resp, "RateLimit-Policy"))
	})
	t.Run("five a user, over three instances", func(t *testing.T) {
		tally := harness.Crowd(t.Context(), p.edge, 200, 1, pay("app-2", "ben"))
		require.Equal(t, "5 x 201, 195 x 429", tally.String())
		resp := p.do(t, pay("app-2", "ben"))
		require.Equal(t, http.StatusTooManyRequests, resp.Status)
		require.Equal(t, bothPolicies, list(resp, "RateLimit-Policy"))
		require.Regexp(t, `^"payments-per-user";r=0;t=\d+, "requests-per-key";r=\d+;t=\d+$`, list(resp, "RateLimit"))
		require.Equal(t, []string{"application/problem+json"}, resp.Header.Values("Content-Type"))
		require.Equal(t, []string{"no-store"}, resp.Header.Values("Cache-Control"))
		require.Len(t, resp.Header.Values("Retry-After"), 1)
		require.Contains(t, resp.Body, `"violated-policies":["payments-per-user"]`)

		instances := map[string]bool{}
		for range 4 { // those that ann has left, in turn over the three
			_, by, ok := strings.Cut(p.do(t, pay("app-2", "ann")).Body, "initiated by ")
			require.True(t, ok, "another user is not limited by what ben did")
			instances[by] = true
		}
		require.Len(t, instances, 3, "an instance took no part")
		require.Equal(t, http.StatusTooManyRequests, p.do(t, pay("app-2", "ann")).Status)
	})
	t.Run("the gateway's limit", func(t *testing.T) {
		r := harness.Request{Method: http.MethodGet, Target: "/healthz", Header: []string{"x-api-key: app-3"}}
		admitted, denied := 0, 0
		for denied == 0 { // 5 more are admitted each second, if it takes long
			tally := harness.Crowd(t.Context(), p.edge, 100, 5, r)
			require.Equal(t, 500, tally.Status(200)+tally.Status(429), tally)
			admitted, denied = admitted+tally.Status(200), tally.Status(429)
		}
		require.GreaterOrEqual(t, admitted, 300)
	})
	t.Run("a payment that cannot be counted is not made", func(t *testing.T) {
		p.redis.Kill()
		resp := p.do(t, pay("app-4", "cleo"))
		require.Equal(t, http.StatusServiceUnavailable, resp.Status, resp)
		require.Equal(t, []string{"application/problem+json"}, resp.Header.Values("Content-Type"))
		require.Contains(t, resp.Body, "/errors/temporary-reduced-capacity")
		require.Len(t, resp.Header.Values("Retry-After"), 1)
		require.Equal(t, bothPolicies, list(resp, "RateLimit-Policy"))
	})
}
