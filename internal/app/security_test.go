package app_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/internal/testcerts"
)

// secure is a service with TLS, and those who vouch for both sides.
type secure struct {
	*instance
	dir     string
	ca      *testcerts.Authority
	clients *testcerts.Authority
}

func (s *secure) file(name string) string { return filepath.Join(s.dir, name) }

func (s *secure) issue(ca *testcerts.Authority, l testcerts.Leaf) testcerts.Pair {
	s.t.Helper()
	pair, err := ca.Issue(l)
	require.NoError(s.t, err)
	return pair
}

// renew gives both servers a certificate of that name.
func (s *secure) renew(t *testing.T, name string) {
	t.Helper()
	pair, err := s.ca.Issue(testcerts.Leaf{Name: name})
	require.NoError(t, err)
	require.NoError(t, pair.Write(s.file("tls.crt"), s.file("tls.key")))
}

const token = "0123456789abcdef-token"

// startSecure starts a service with mutual TLS on both addresses, and a token.
func startSecure(t *testing.T, change func(*app.Options)) *secure {
	t.Helper()
	s := &secure{dir: t.TempDir()}
	for _, a := range []**testcerts.Authority{&s.ca, &s.clients} {
		var err error
		*a, err = testcerts.New("authority")
		require.NoError(t, err)
	}
	s.renew(t, "one")
	require.NoError(t, testcerts.Replace(s.file("clients.crt"), s.clients.PEM))
	require.NoError(t, testcerts.Replace(s.file("tokens"), []byte("ops "+token)))
	opts, log := options(t, perIP)
	opts.GRPCTLS = app.TLSOptions{CertFile: s.file("tls.crt"), KeyFile: s.file("tls.key"), ClientCAFile: s.file("clients.crt")}
	opts.AdminTLS, opts.AdminTokenFile = opts.GRPCTLS, s.file("tokens")
	if change != nil {
		change(&opts)
	}
	s.instance = launch(t, opts, log)
	return s
}

// config trusts the servers, and shows a certificate if there is one.
func (s *secure) config(own ...testcerts.Pair) *tls.Config {
	s.t.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost"}
	require.True(s.t, config.RootCAs.AppendCertsFromPEM(s.ca.PEM))
	for _, pair := range own {
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		require.NoError(s.t, err)
		config.Certificates = append(config.Certificates, cert)
	}
	return config
}

// ask makes a call on a new connection.
func (s *secure) ask(creds credentials.TransportCredentials) error {
	s.t.Helper()
	conn, err := grpc.NewClient(s.GRPCAddr().String(), grpc.WithTransportCredentials(creds))
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, conn.Close()) }()
	_, err = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(s.t.Context(), request("edge", "ip", hostname))
	return err
}

// shown is a page of the admin address over TLS, and the name on its certificate.
func (s *secure) shown(path string, config *tls.Config) (page, name string) {
	s.t.Helper()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	answer, err := client.Get("https://" + s.AdminAddr().String() + path)
	require.NoError(s.t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, answer.Body.Close())
	return string(body), answer.TLS.PeerCertificates[0].Subject.CommonName
}

func TestGRPCWithMutualTLS(t *testing.T) {
	s := startSecure(t, nil)
	envoy := s.config(s.issue(s.clients, testcerts.Leaf{Name: "envoy"}))
	require.NoError(t, s.ask(credentials.NewTLS(envoy)))
	for name, creds := range map[string]credentials.TransportCredentials{
		"no certificate":      credentials.NewTLS(s.config()),
		"another's":           credentials.NewTLS(s.config(s.issue(s.ca, testcerts.Leaf{Name: "envoy"}))),
		"no TLS":              insecure.NewCredentials(),
		"nobody it may trust": credentials.NewTLS(&tls.Config{ServerName: "localhost", RootCAs: x509.NewCertPool()}),
	} {
		require.Equal(t, codes.Unavailable, status.Code(s.ask(creds)), name)
	}
	s.await("TLS handshake failed")
	metrics, _ := s.shown("/metrics", s.config())
	require.Regexp(t, `envoy_rls_tls_handshake_failures_total\{server="grpc"\} [1-9]`, metrics)
	require.Contains(t, metrics, `envoy_rls_tls_handshake_failures_total{server="admin"} 0`)
}

// A new certificate acts on the next connection to either address; one of no use is counted, told, and leaves the old one.
func TestCertificatesOfServersAreRenewed(t *testing.T) {
	s := startSecure(t, nil)
	envoy := s.config(s.issue(s.clients, testcerts.Leaf{Name: "envoy"}))
	conn, err := grpc.NewClient(s.GRPCAddr().String(), grpc.WithTransportCredentials(credentials.NewTLS(envoy)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	old := rlsv3.NewRateLimitServiceClient(conn)
	_, err = old.ShouldRateLimit(t.Context(), request("edge", "ip", hostname))
	require.NoError(t, err)

	s.renew(t, "two")
	metrics, name := s.shown("/metrics", s.config())
	require.Equal(t, "two", name)
	require.Contains(t, metrics, `envoy_rls_certificate_reload_total{result="success",use="admin"} 1`)
	require.Contains(t, metrics, `envoy_rls_certificate_expiry_timestamp_seconds{use="grpc"} `)
	seen := ""
	envoy.VerifyConnection = func(c tls.ConnectionState) error { seen = c.PeerCertificates[0].Subject.CommonName; return nil }
	require.NoError(t, s.ask(credentials.NewTLS(envoy)))
	require.Equal(t, "two", seen)
	_, err = old.ShouldRateLimit(t.Context(), request("edge", "ip", hostname))
	require.NoError(t, err, "a connection that there was is left alone")

	require.NoError(t, os.WriteFile(s.file("tls.key"), []byte("half"), 0o600))
	for range 3 {
		metrics, name = s.shown("/metrics", s.config())
		require.Equal(t, "two", name)
	}
	for _, use := range []string{"admin", "grpc"} {
		require.Contains(t, metrics, `envoy_rls_certificate_reload_failing{use="`+use+`"} 1`)
		require.Contains(t, metrics, `envoy_rls_certificate_reload_total{result="failure",use="`+use+`"} 1`)
	}
	require.Equal(t, 2, strings.Count(s.log.String(), "certificate files cannot be used"), "once for each server")
	s.renew(t, "three")
	_, name = s.shown("/metrics", s.config())
	require.Equal(t, "three", name)
}

// Everybody may look at the admin address; over TLS only, and with no certificate or a good one.
func TestAdminWithTLS(t *testing.T) {
	s := startSecure(t, nil)
	for _, path := range []string{"/readyz", "/metrics", "/api/v1/status"} {
		page, _ := s.shown(path, s.config())
		require.NotEmpty(t, page)
	}
	code, body := get(t, "http://"+s.AdminAddr().String()+"/readyz")
	require.Equal(t, http.StatusBadRequest, code)
	require.Contains(t, body, "HTTP request to an HTTPS server")
	client := http.Client{Transport: &http.Transport{TLSClientConfig: s.config(s.issue(s.ca, testcerts.Leaf{Name: "envoy"})), DisableKeepAlives: true}}
	_, err := client.Get("https://" + s.AdminAddr().String() + "/readyz")
	require.ErrorContains(t, err, "unknown certificate authority")
}

func TestSecurityOptions(t *testing.T) {
	for want, change := range map[string]func(*app.Options){
		"grpc-tls-cert-file, grpc-tls-key-file: want both":   func(o *app.Options) { o.GRPCTLS.CertFile = "x" },
		"admin-tls-cert-file, admin-tls-key-file: want both": func(o *app.Options) { o.AdminTLS.KeyFile = "x" },
		"grpc-tls-client-ca-file: clients are asked":         func(o *app.Options) { o.GRPCTLS.ClientCAFile = "x" },
		"debug-addr: :6060 can be reached from elsewhere":    func(o *app.Options) { o.DebugAddr = ":6060" },
		"debug-addr: 0.0.0.0:6060 can be":                    func(o *app.Options) { o.DebugAddr = "0.0.0.0:6060" },
		"debug-addr: [::]:6060 can be":                       func(o *app.Options) { o.DebugAddr = "[::]:6060" },
		"debug-addr: 10.0.0.7:6060 can be":                   func(o *app.Options) { o.DebugAddr = "10.0.0.7:6060" },
		"debug-addr: loopback.example.org:6060 can be":       func(o *app.Options) { o.DebugAddr = "loopback.example.org:6060" },
	} {
		opts, _ := options(t, perIP)
		change(&opts)
		_, err := app.New(opts)
		require.ErrorContains(t, err, want)
	}
	for _, addr := range []string{"localhost:0", "[::1]:0", "127.0.0.2:0", ""} {
		opts, _ := options(t, perIP)
		opts.DebugAddr = addr
		_, err := app.New(opts)
		require.NoError(t, err, addr)
	}
	for want, change := range map[string]func(*app.Options){
		"grpc-tls: certificate: open":    func(o *app.Options) { o.GRPCTLS.CertFile, o.GRPCTLS.KeyFile = "/none", "/none" },
		"admin-tls: certificate: open":   func(o *app.Options) { o.AdminTLS.CertFile, o.AdminTLS.KeyFile = "/none", "/none" },
		"admin-token-file: no such file": func(o *app.Options) { o.AdminTokenFile = "/none" },
	} {
		opts, log := options(t, perIP)
		change(&opts)
		require.ErrorContains(t, newInstance(t, opts, log).Start(t.Context()), want)
	}
}

// Secrets that others can come by are warned of once, at the start.
func TestWarnsOfOpenSecrets(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(file, []byte(token), 0o600))
	require.NoError(t, os.Chmod(file, 0o644))
	opts, log := options(t, perIP)
	opts.AdminTokenFile, opts.AdminAddr = file, "0.0.0.0:0"
	launch(t, opts, log)
	require.Contains(t, log.String(), "can be read by every user of this machine")
	require.Contains(t, log.String(), "tokens come over the network as they are")
	require.NotContains(t, log.String(), token)

	quiet := startSecure(t, nil)
	require.NotContains(t, quiet.log.String(), "level=WARN")
}

func TestDebugAnswersLoopbackOnly(t *testing.T) {
	i := start(t, perIP)
	for host, want := range map[string]int{"": 200, "localhost:6060": 200, "[::1]:6060": 200, "evil.example": 403, "evil.example:6060": 403} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+i.DebugAddr().String()+"/debug/pprof/goroutine", nil)
		require.NoError(t, err)
		r.Host = host
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		require.NoError(t, err)
		require.NoError(t, answer.Body.Close())
		require.Equal(t, want, answer.StatusCode, host)
	}
	code, _ := get(t, "http://"+i.DebugAddr().String()+"/debug/pprof/cmdline")
	require.Equal(t, http.StatusNotFound, code, "arguments may have passwords in them")
}
