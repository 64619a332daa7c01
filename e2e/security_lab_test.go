package e2e_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/internal/testcerts"
)

// secureLab is a lab in which everything speaks TLS and shows a certificate: Envoy as docs/security.md says, two instances, and Redis.
type secureLab struct {
	*testing.T
	*harness.Lab
	redis   *redistest.Server
	dir     string
	servers *testcerts.Authority // vouches for the instances
	clients *testcerts.Authority // for Envoy

	polls atomic.Int64           // see pollAdmin
	token atomic.Pointer[string] // by which it changes something
}

// in is a file in one of the lab's directories: of the service, of Envoy.
func (l *secureLab) in(side, name string) string { return filepath.Join(l.dir, side, name) }

const limiterUser = "limiter"

func newSecureLab(t *testing.T, policies string, change func(*harness.Options)) *secureLab {
	t.Helper()
	l := &secureLab{T: t, dir: t.TempDir(), redis: redistest.StartStandalone(t, redistest.Options{TLS: true, ClientCerts: true})}
	for _, side := range []string{"service", "envoy"} {
		require.NoError(t, os.Mkdir(filepath.Join(l.dir, side), 0o700))
	}
	l.servers, l.clients = l.authority(), l.authority()
	l.put(l.in("envoy", "ca.crt"), l.servers.PEM)
	l.put(l.in("service", "ca.crt"), l.clients.PEM)
	l.renewServer()
	l.renewClient()
	l.do("ACL", "SETUSER", limiterUser, "on", ">"+firstPassword, "~rl:*", "&*", "+@all")
	l.put(l.in("service", "password"), []byte(firstPassword+"\n"))
	l.put(l.in("service", "tokens"), []byte("ops "+firstToken+"\n"))
	first := firstToken
	l.token.Store(&first)
	l.followRedis()

	s := setup{policies: writePolicies(t, policies), instances: 2, envoyConfig: l.writeEnvoy()}
	o := s.options(t.TempDir())
	o.ServiceArgs = append(o.ServiceArgs, l.args()...)
	o.AdminTLS = l.adminTLS
	change(&o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var err error
	l.Lab, err = harness.StartAnywhere(ctx, o)
	require.NoError(t, err)
	t.Cleanup(l.Stop)
	return l
}

func (l *secureLab) args() []string {
	in := func(name string) string { return l.in("service", name) }
	return []string{
		"--store", "redis", "--redis-mode", "standalone", "--store-timeout", "3s",
		"--redis-url", "rediss://" + limiterUser + "@" + l.redis.Addr(), "--redis-password-file", in("password"),
		"--redis-ca-file", in("redis-ca"), "--redis-cert-file", in("redis-cert"), "--redis-key-file", in("redis-key"),
		"--grpc-tls-cert-file", in("tls.crt"), "--grpc-tls-key-file", in("tls.key"), "--grpc-tls-client-ca-file", in("ca.crt"),
		"--admin-tls-cert-file", in("tls.crt"), "--admin-tls-key-file", in("tls.key"), "--admin-token-file", in("tokens"),
	}
}

// writeEnvoy puts what docs/security.md says of TLS into the configuration that is shipped. Connections are renewed all the time, so that each change
// is met.
func (l *secureLab) writeEnvoy() string {
	l.Helper()
	document, err := os.ReadFile("../docs/security.md")
	require.NoError(l, err)
	_, rest, found := strings.Cut(string(document), "    transport_socket:\n")
	require.True(l, found)
	socket, _, found := strings.Cut(rest, "    typed_extension_protocol_options:\n")
	require.True(l, found)
	move := func(text string) string {
		return strings.ReplaceAll(text, "/etc/envoy/certs", filepath.Join(l.dir, "envoy"))
	}
	for _, block := range strings.Split(string(document), "```yaml\n")[1:] {
		if block, _, _ = strings.Cut(block, "```"); strings.HasPrefix(block, "resources:") {
			name := "certificate.yaml"
			if strings.Contains(block, "name: authority") {
				name = "authority.yaml"
			}
			l.put(l.in("envoy", name), []byte(move(block)))
		}
	}
	shipped, err := os.ReadFile("../envoy/envoy.yaml")
	require.NoError(l, err)
	config := string(shipped)
	for old, more := range map[string]string{
		"    typed_extension_protocol_options:\n": "    transport_socket:\n" + move(socket),
		"        explicit_http_config:\n":         "        common_http_protocol_options: {max_connection_duration: 0.3s}\n",
	} {
		require.Equal(l, 1, strings.Count(config, old), old)
		config = strings.Replace(config, old, more+old, 1)
	}
	path := filepath.Join(l.TempDir(), "envoy.yaml")
	l.put(path, []byte(config))
	return path
}

func (l *secureLab) authority() *testcerts.Authority {
	l.Helper()
	ca, err := testcerts.New("authority")
	require.NoError(l, err)
	return ca
}

func (l *secureLab) put(path string, text []byte) {
	l.Helper()
	require.NoError(l, testcerts.Replace(path, text))
}

func (l *secureLab) issue(ca *testcerts.Authority, name string) testcerts.Pair {
	l.Helper()
	pair, err := ca.Issue(testcerts.Leaf{Name: name})
	require.NoError(l, err)
	return pair
}

// renewServer gives the instances a certificate by whoever vouches for them now, and returns its number.
func (l *secureLab) renewServer() *big.Int {
	l.Helper()
	pair := l.issue(l.servers, "envoy-rls")
	require.NoError(l, pair.Write(l.in("service", "tls.crt"), l.in("service", "tls.key")))
	return serialOf(l.T, pair)
}

// renewClient does the same for Envoy: the key first, as in the document.
func (l *secureLab) renewClient() *big.Int {
	l.Helper()
	pair := l.issue(l.clients, "envoy")
	l.put(l.in("envoy", "tls.key"), pair.Key)
	l.put(l.in("envoy", "tls.crt"), pair.Cert)
	return serialOf(l.T, pair)
}

func serialOf(t *testing.T, pair testcerts.Pair) *big.Int {
	t.Helper()
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert.SerialNumber
}

// followRedis gives the service the certificates that Redis goes by now.
func (l *secureLab) followRedis() {
	l.Helper()
	for from, to := range map[string]string{l.redis.Files.CA: "redis-ca", l.redis.Files.ClientKey: "redis-key", l.redis.Files.ClientCert: "redis-cert"} {
		text, err := os.ReadFile(from)
		require.NoError(l, err)
		l.put(l.in("service", to), text)
	}
}

func (l *secureLab) do(args ...any) {
	l.Helper()
	_, err := l.redis.Do(l.Context(), args...)
	require.NoError(l, err)
}

// adminTLS trusts those whom Envoy trusts.
func (l *secureLab) adminTLS() *tls.Config {
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "envoy-rls"}
	text, err := os.ReadFile(l.in("envoy", "ca.crt"))
	if err == nil {
		config.RootCAs.AppendCertsFromPEM(text)
	}
	return config
}

// until waits for something that has to happen.
func (l *secureLab) until(what string, check func() error) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), patience)
	defer cancel()
	require.NoError(l, harness.Until(ctx, what, check, l.Processes()...))
}

// metric adds up the series of both instances that begin so.
func (l *secureLab) metric(series string) (total float64) {
	l.Helper()
	for i := range l.Services {
		page, err := l.AdminPage(l.Context(), i, "/metrics")
		require.NoError(l, err)
		for line := range strings.Lines(page) {
			if strings.HasPrefix(line, series) {
				var value float64
				_, err := fmt.Sscan(line[strings.LastIndexByte(line, ' ')+1:], &value)
				require.NoError(l, err)
				total += value
			}
		}
	}
	return total
}

// knows waits until Envoy has taken, or given up, a certificate.
func (l *secureLab) knows(what string, serial *big.Int) {
	l.Helper()
	l.until("Envoy to know "+what, func() error {
		page, err := harness.Get(l.Context(), "http://"+l.Options.EnvoyAdmin+"/certs")
		if err == nil && !strings.Contains(page, fmt.Sprintf("%x", serial)) {
			err = fmt.Errorf("no %x in %s", serial, page)
		}
		return err
	})
}

// reconnected waits until Envoy has made new connections to the service since.
func (l *secureLab) reconnected() {
	l.Helper()
	handshakes := func() int {
		n, err := l.EnvoyStat(l.Context(), `cluster.envoy_rls.ssl.handshake`)
		require.NoError(l, err)
		return n
	}
	before := handshakes()
	l.until("new connections", func() error {
		if now := handshakes(); now < before+8 { // two workers, two instances, and the health checks
			return fmt.Errorf("%d handshakes, %d before", now, before)
		}
		return nil
	})
}

// pollAdmin looks at an instance and changes something there, each time on a new connection, until it is stopped; it returns what went wrong.
func (l *secureLab) pollAdmin() (stop func() []error) {
	quit, done := make(chan struct{}), make(chan []error)
	go func() {
		var faults []error
		defer func() { done <- faults }()
		for n := 0; ; n++ {
			if _, err := l.AdminPage(context.Background(), n%2, "/readyz"); err != nil {
				faults = append(faults, err)
			}
			status, err := l.change(n%2, *l.token.Load())
			for try := 0; status >= 500 && try < 100; try++ { // a connection to Redis was cut: a reset may be repeated
				time.Sleep(10 * time.Millisecond)
				status, err = l.change(n%2, *l.token.Load())
			}
			if err != nil || status != http.StatusOK {
				faults = append(faults, fmt.Errorf("a change was answered %d: %w", status, err))
			}
			l.polls.Add(1)
			select {
			case <-quit:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() []error {
		close(quit)
		return <-done
	}
}

// change fills a bucket that nobody uses, on instance i, with a token.
func (l *secureLab) change(i int, token string) (status int, err error) {
	body := strings.NewReader(`{"policy": "all", "attributes": {"apiKey": "nobody's"}, "reason": "a test"}`)
	r, err := http.NewRequest(http.MethodPost, "https://"+l.Options.Services[i].Admin+"/api/v1/buckets/reset", body)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+token)
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: l.adminTLS()}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, errors.Join(err, answer.Body.Close())
}

// polled waits until whoever polls has begun and ended a request since, and so goes by the files as they are now.
func (l *secureLab) polled() {
	l.Helper()
	before := l.polls.Load()
	l.until("a poll", func() error {
		if now := l.polls.Load(); now < before+2 {
			return fmt.Errorf("%d polls, %d before", now, before)
		}
		return nil
	})
}
