package e2e_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// secrets are planted, and then searched for in all that the service says.
type secrets []string

// plant makes a secret that is found as it is, escaped for a URL, and in base64.
func (s *secrets) plant(text string) string {
	*s = append(*s, text, url.QueryEscape(text), base64.RawStdEncoding.EncodeToString([]byte(text)))
	return text
}

// file plants what stands in a file: each line of it that is long enough to be none by chance.
func (s *secrets) file(t *testing.T, path string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	planted := len(*s)
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); len(line) >= 16 && !strings.HasPrefix(line, "-----") {
			*s = append(*s, line)
		}
	}
	require.Greater(t, len(*s), planted, "nothing to plant in %s", path)
}

// requireNone fails if there is one in what was said.
func (s *secrets) requireNone(t *testing.T, where, said string) {
	t.Helper()
	require.NotEmpty(t, said, where)
	for _, secret := range *s {
		if i := strings.Index(said, secret); i >= 0 {
			t.Errorf("%s says %q: …%s…", where, secret, said[max(0, i-100):min(len(said), i+len(secret)+100)])
		}
	}
}

// TestSecretsAreNotTold: secrets are in every place where there can be some, everything goes wrong that they could come up in, and nothing of what
// the service then says has one of them.
func TestSecretsAreNotTold(t *testing.T) {
	const policies = `
domain: edge
policies:
  - {id: keys, match: {apiKey: "*"}, key: [apiKey], algorithm: token-bucket, capacity: 5, refillPerDay: 1, onStoreFailure: closed}
`
	var planted secrets
	logs := &harness.Journal{}
	l := newSecureLab(t, policies, func(o *harness.Options) {
		o.Logs = logs
		o.ServiceArgs = append(o.ServiceArgs, "--log-level", "debug")
	})
	for _, name := range []string{"tls.key", "redis-key", "password", "tokens"} {
		planted.file(t, l.in("service", name))
	}
	apiKey := planted.plant("marker-of-an-api-key")
	for range 8 {
		_, err := (&harness.Client{Addr: l.Options.Listen}).Do(t.Context(), harness.Request{Method: "GET", Target: "/", Header: []string{"x-api-key: " + apiKey}})
		require.NoError(t, err)
	}
	l.ask(t, planted.plant("marker-of-a-wrong-token"), apiKey)

	// Faults: a wrong password and none, halves of files, tokens that are none.
	l.put(l.in("service", "password"), []byte(planted.plant("marker-of-a-wrong-password")))
	l.do("CLIENT", "KILL", "USER", limiterUser)
	l.until("a wrong password to be told", func() error {
		_, err := (&harness.Client{Addr: l.Options.Listen}).Do(t.Context(), harness.Request{Method: "GET", Target: "/", Header: []string{"x-api-key: " + apiKey + "2"}})
		if err == nil && !strings.Contains(logs.String(), "WRONGPASS") {
			err = fmt.Errorf("not yet")
		}
		return err
	})
	half := "-----BEGIN PRIVATE KEY-----\n" + planted.plant("bWFya2VyLW9mLWhhbGYtYS1rZXk") + "\n"
	for _, name := range []string{"tls.key", "redis-key", "tokens", "ca.crt", "redis-ca"} {
		l.put(l.in("service", name), []byte(half))
	}
	l.do("CLIENT", "KILL", "USER", limiterUser)
	l.ask(t, planted.plant("marker-of-another-token"), apiKey)
	require.Contains(t, logs.String(), "certificate files cannot be used")

	for i := range l.Services {
		for _, page := range adminPages() {
			text := answerOf(t, l.adminTLS(), "https://"+l.Options.Services[i].Admin+page)
			planted.requireNone(t, page, text)
		}
	}
	for i, signal := range []syscall.Signal{syscall.SIGABRT, syscall.SIGQUIT} { // both have Go show all goroutines
		require.NoError(t, l.Services[i].Signal(signal))
		<-l.Services[i].Done()
	}
	require.Contains(t, logs.String(), "goroutine 1 gp=")
	planted.requireNone(t, "the log", logs.String())
}

// ask tries what needs a token, and what has an API key in it.
func (l *secureLab) ask(t *testing.T, token, apiKey string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: l.adminTLS(), DisableKeepAlives: true}}
	explain := `{"domain": "edge", "descriptors": [{"entries": [{"key": "api_key", "value": "` + apiKey + `"}]}]}`
	for path, body := range map[string]string{"/api/v1/buckets/reset": explain, "/api/v1/explain": explain, "/api/v1/explain?": explain[:len(explain)-8]} {
		for i := range l.Services {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+l.Options.Services[i].Admin+path, strings.NewReader(body))
			require.NoError(t, err)
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Authorization", "Bearer "+token)
			answer, err := client.Do(r)
			require.NoError(t, err)
			text, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.NotContains(t, string(text), token)
			require.NotContains(t, string(text), apiKey)
		}
	}
}

// adminPages are those that somebody can look at without knowing more.
func adminPages() []string {
	return []string{
		"/", "/healthz", "/readyz", "/metrics", "/api/v1/status", "/api/v1/policies", "/api/v1/explain", "/api/v1/instances", "/api/v1/shards",
		"/api/v1/breakers", "/api/v1/audit", "/api/v1/blocks", "/api/v1/topkeys", "/none-such",
	}
}

// answerOf is what a page says, whatever its status.
func answerOf(t *testing.T, config *tls.Config, at string) string {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	answer, err := client.Get(at)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	if zipped, err := gzip.NewReader(bytes.NewReader(body)); err == nil {
		body, err = io.ReadAll(zipped)
		require.NoError(t, err)
	}
	return fmt.Sprint(answer.Status, answer.Header, string(body))
}

// TestSecretsOfTheCommandLine: profiles show much of the process, but no password that came in a URL.
func TestSecretsOfTheCommandLine(t *testing.T) {
	t.Parallel()
	var planted secrets
	password := planted.plant("marker-in-the-url")
	server := redistest.StartStandalone(t, redistest.Options{Password: password})
	i, err := harness.StartInstance(t.Context(), binaries.service, []string{
		"serve", "--policies", writePolicies(t, generous), "--store", "redis", "--redis-url", "redis://:" + password + "@" + server.Addr(), "--drain-delay", "0s",
	}, []string{"ENVOY_RLS_REDIS_PASSWORD=" + planted.plant("marker-in-a-variable-that-is-none")})
	require.NoError(t, err)
	t.Cleanup(i.Stop)
	for _, page := range []string{"", "cmdline", "goroutine?debug=2", "goroutine", "heap?debug=1", "heap", "allocs", "threadcreate?debug=1", "mutex", "block", "trace?seconds=0.1", "symbol"} {
		planted.requireNone(t, page, answerOf(t, nil, "http://"+i.Debug+"/debug/pprof/"+page))
	}
	require.NoError(t, i.Process.Signal(syscall.SIGABRT))
	<-i.Process.Done()
	planted.requireNone(t, "the log", i.Log.String())
}

// TestSecretsOfAFailedStart: what keeps the service from starting is told without what it is about.
func TestSecretsOfAFailedStart(t *testing.T) {
	t.Parallel()
	const secret = "marker+of/a:start@#"
	file := func(text string) string {
		path := filepath.Join(t.TempDir(), "file")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	pemOf := func(kind string) string {
		return file("-----BEGIN " + kind + "-----\n" + secret + "\n-----END " + kind + "-----\n")
	}
	redis := []string{"--store", "redis", "--redis-url", "rediss://127.0.0.1:1"}
	dsn := func(text string) []string {
		return []string{"--policy-source", "postgres", "--policy-kept-file", "", "--policy-dsn-file", file(text)}
	}
	tests := map[string][]string{
		"URL that is none":         {"--store", "redis", "--redis-url", "rdis://" + secret},
		"port that is none":        {"--store", "redis", "--redis-url", "redis://127.0.0.1:marker"},
		"parameter of a URL":       {"--store", "redis", "--redis-url", "redis://127.0.0.1?pasword=" + url.QueryEscape(secret)},
		"two passwords":            append(redis[:2:2], "--redis-url", "redis://:"+url.QueryEscape(secret)+"@h", "--redis-password-file", file(secret)),
		"URLs that differ":         {"--store", "redis", "--redis-url", "redis://:" + url.QueryEscape(secret) + "@a", "--redis-url", "redis://:x@b"},
		"password for its file":    append(redis[:4:4], "--redis-password-file", secret),
		"key of Redis":             append(redis[:4:4], "--redis-cert-file", pemOf("CERTIFICATE"), "--redis-key-file", pemOf("PRIVATE KEY")),
		"authority of Redis":       append(redis[:4:4], "--redis-ca-file", file(secret)),
		"key of gRPC":              {"--grpc-tls-cert-file", pemOf("CERTIFICATE"), "--grpc-tls-key-file", pemOf("EC PRIVATE KEY")},
		"key for a certificate":    {"--admin-tls-cert-file", pemOf("PRIVATE KEY"), "--admin-tls-key-file", pemOf("CERTIFICATE")},
		"tokens":                   {"--admin-token-file", file("ops " + secret + " x")},
		"token with an odd name":   {"--admin-token-file", file(secret + " ops-0123456789abcdef")},
		"token for its file":       {"--admin-token-file", secret},
		"connection string":        dsn("postgres://limiter:" + secret + "@127.0.0.1:1/x?sslmode=disable"),
		"words of a connection":    dsn("host=127.0.0.1 port=1 user=limiter password='" + secret + "'"),
		"connection that is none":  dsn("postgres:/" + secret),
		"connection for its file":  {"--policy-source", "postgres", "--policy-kept-file", "", "--policy-dsn-file", "postgres://limiter:" + secret + "@127.0.0.1/x"},
		"policies that hold a key": {"--policies", file("domain: edge\npolicies:\n  - {id: x, match: {apiKey: " + secret + "}, kay: [ip]}\n")},
		"environment":              append(redis[:2:2], "ENVOY_RLS_REDIS_URL=redis//"+secret),
	}
	for i, name := range slices.Sorted(maps.Keys(tests)) {
		format := []string{"text", "json"}[i%2]
		t.Run(name, func(t *testing.T) {
			var env, flags []string
			for _, arg := range tests[name] {
				if strings.HasPrefix(arg, "ENVOY_RLS_") {
					env = append(env, arg)
					continue
				}
				flags = append(flags, arg)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience/2)
			defer cancel()
			all := append([]string{
				"serve", "--policies", writePolicies(t, generous), "--grpc-addr", "127.0.0.1:0", "--admin-addr", "127.0.0.1:0", "--debug-addr", "", "--log-format", format,
			}, flags...)
			cmd := exec.CommandContext(ctx, binaries.service, all...)
			cmd.Env = append(os.Environ(), env...)
			said, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.NoError(t, ctx.Err(), "it started, or hung: %s", said)
			require.NotEmpty(t, said)
			for _, part := range []string{secret, url.QueryEscape(secret), "marker"} {
				require.NotContains(t, string(said), part)
			}
		})
	}
}
