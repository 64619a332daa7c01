package tlsfiles_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/testcerts"
	"github.com/envoy-rls/envoy-rls/internal/tlsfiles"
)

// fixture is a directory with the files of one side, and what the package told of them.
type fixture struct {
	*testing.T
	ca            *testcerts.Authority
	cert, key, cf string // paths

	mu   sync.Mutex
	told []error
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	f := &fixture{T: t, ca: authority(t, "first"), cert: filepath.Join(dir, "tls.crt"), key: filepath.Join(dir, "tls.key"), cf: filepath.Join(dir, "ca.crt")}
	f.put(f.issue("one"))
	f.replace(f.cf, f.ca.PEM)
	return f
}

func authority(t *testing.T, name string) *testcerts.Authority {
	t.Helper()
	ca, err := testcerts.New(name)
	require.NoError(t, err)
	return ca
}

func (f *fixture) issue(name string) testcerts.Pair {
	f.Helper()
	return issue(f.T, f.ca, testcerts.Leaf{Name: name})
}

func issue(t *testing.T, ca *testcerts.Authority, l testcerts.Leaf) testcerts.Pair {
	t.Helper()
	pair, err := ca.Issue(l)
	require.NoError(t, err)
	return pair
}

func (f *fixture) put(p testcerts.Pair) {
	f.Helper()
	require.NoError(f, p.Write(f.cert, f.key))
}

func (f *fixture) replace(path string, text []byte) {
	f.Helper()
	require.NoError(f, testcerts.Replace(path, text))
}

func (f *fixture) options() tlsfiles.Options {
	return tlsfiles.Options{CertFile: f.cert, KeyFile: f.key, CAFile: f.cf, OnReload: func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.told = append(f.told, err)
	}}
}

func (f *fixture) files() *tlsfiles.Files {
	f.Helper()
	files, err := tlsfiles.New(f.options())
	require.NoError(f, err)
	return files
}

// reports are what was told since the last call.
func (f *fixture) reports() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	told := f.told
	f.told = nil
	return told
}

// echo is a server on loopback that sends back what it gets, until the test ends. It returns its address.
func echo(t *testing.T, config *tls.Config) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return listener.Addr().String()
}

// dial connects and returns the connection and the name of the server's certificate, or why one of both sides did not want to.
func dial(t *testing.T, addr string, config *tls.Config) (*tls.Conn, string, error) {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, config)
	if err != nil {
		return nil, "", err
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, conn.ConnectionState().PeerCertificates[0].Subject.CommonName, say(conn)
}

// say sends a byte and waits for it to come back: a server that refuses a client's certificate says so only then.
func say(conn *tls.Conn) error {
	if _, err := conn.Write([]byte{1}); err != nil {
		return err
	}
	_, err := conn.Read(make([]byte, 1))
	return err
}

// client trusts an authority, and shows a certificate if there is one.
func client(t *testing.T, trusted *testcerts.Authority, own ...testcerts.Pair) *tls.Config {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(trusted.PEM))
	config := &tls.Config{RootCAs: roots}
	for _, pair := range own {
		cert, err := tls.X509KeyPair(pair.Cert, pair.Key)
		require.NoError(t, err)
		config.Certificates = append(config.Certificates, cert)
	}
	return config
}

// A new certificate is shown in the next handshake, however it came into the files, and connections stay.
func TestServerShowsWhatIsInTheFiles(t *testing.T) {
	ways := map[string]func(f *fixture, p testcerts.Pair){
		"renamed": (*fixture).put,
		"written in place": func(f *fixture, p testcerts.Pair) {
			require.NoError(f, os.WriteFile(f.cert, p.Cert, 0o600))
			require.NoError(f, os.WriteFile(f.key, p.Key, 0o600))
		},
		"a directory behind a link": func(f *fixture, p testcerts.Pair) {
			dir := f.TempDir() // another one each time
			require.NoError(f, p.Write(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")))
			link := filepath.Join(filepath.Dir(f.cert), "..data")
			require.NoError(f, os.Symlink(dir, link+"_tmp"))
			require.NoError(f, os.Rename(link+"_tmp", link))
			for _, path := range []string{f.cert, f.key} {
				require.NoError(f, os.Remove(path))
				require.NoError(f, os.Symlink(filepath.Join("..data", filepath.Base(path)), path))
			}
		},
	}
	for name, change := range ways {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			addr := echo(t, f.files().Server(tls.RequireAndVerifyClientCert))
			config := client(t, f.ca, f.issue("client"))
			old, shown, err := dial(t, addr, config)
			require.NoError(t, err)
			require.Equal(t, "one", shown)
			require.Empty(t, f.reports())
			for _, next := range []string{"two", "three"} {
				change(f, f.issue(next))
				_, shown, err = dial(t, addr, config)
				require.NoError(t, err)
				require.Equal(t, next, shown)
				require.Equal(t, []error{nil}, f.reports())
			}
			require.NoError(t, say(old), "a connection that there was is left alone")
		})
	}
}

// What cannot be used leaves the old files in force, and is told once, however many connections come.
func TestFaultyFilesLeaveTheOldOnes(t *testing.T) {
	other := authority(t, "other")
	tests := map[string]struct {
		change func(f *fixture)
		want   string
	}{
		"half a pair":  {func(f *fixture) { f.replace(f.cert, f.issue("two").Cert) }, "private key does not match public key"},
		"half a file":  {func(f *fixture) { f.replace(f.cert, f.issue("two").Cert[:100]) }, "failed to find any PEM data"},
		"empty":        {func(f *fixture) { f.replace(f.key, nil) }, "failed to find any PEM data"},
		"gone":         {func(f *fixture) { require.NoError(f, os.Remove(f.key)) }, "no such file"},
		"a directory":  {func(f *fixture) { require.NoError(f, os.Remove(f.key)); require.NoError(f, os.Mkdir(f.key, 0o700)) }, "is a directory"},
		"huge":         {func(f *fixture) { f.replace(f.cert, make([]byte, 2<<20)) }, "more than 1048576 bytes"},
		"no authority": {func(f *fixture) { f.replace(f.cf, []byte("none")) }, "certificates to trust: none in"},
		"expired already": {func(f *fixture) {
			f.put(issue(f.T, f.ca, testcerts.Leaf{Name: "two", NotAfter: time.Now().Add(-time.Hour)}))
		}, "has expired on"},
		"not valid yet": {func(f *fixture) {
			f.put(issue(f.T, f.ca, testcerts.Leaf{Name: "two", NotBefore: time.Now().Add(time.Hour)}))
		}, "is not valid before"},
		"swapped":             {func(f *fixture) { p := f.issue("two"); f.put(testcerts.Pair{Cert: p.Key, Key: p.Cert}) }, "certificate"},
		"of another's making": {func(f *fixture) { f.replace(f.key, issue(f.T, other, testcerts.Leaf{}).Key) }, "does not match"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			files := f.files()
			addr := echo(t, files.Server(tls.RequireAndVerifyClientCert))
			config, expiry := client(t, f.ca, f.issue("client")), files.Expiry()
			tt.change(f)
			for range 3 {
				_, shown, err := dial(t, addr, config)
				require.NoError(t, err)
				require.Equal(t, "one", shown)
				require.Equal(t, expiry, files.Expiry())
			}
			told := f.reports()
			require.Len(t, told, 1)
			require.ErrorContains(t, told[0], tt.want)

			require.NoError(t, os.RemoveAll(f.key))
			f.put(f.issue("three"))
			f.replace(f.cf, f.ca.PEM)
			_, shown, err := dial(t, addr, config)
			require.NoError(t, err)
			require.Equal(t, "three", shown)
			require.Equal(t, []error{nil}, f.reports())
		})
	}
}

// Whom a server lets in follows the file, too; nobody gets in by a ticket from before.
func TestServerFollowsWhoMayConnect(t *testing.T) {
	f := newFixture(t)
	addr := echo(t, f.files().Server(tls.RequireAndVerifyClientCert))
	next := authority(t, "next")
	before := client(t, f.ca, f.issue("before"))
	before.ClientSessionCache = tls.NewLRUClientSessionCache(4)
	after := client(t, f.ca, issue(t, next, testcerts.Leaf{Name: "after"}))

	_, _, err := dial(t, addr, client(t, f.ca))
	require.ErrorContains(t, err, "certificate required")
	old, _, err := dial(t, addr, before)
	require.NoError(t, err)
	_, _, err = dial(t, addr, after)
	require.ErrorContains(t, err, "remote error: tls: certificate required")

	f.replace(f.cf, append(f.ca.PEM, next.PEM...))
	for _, config := range []*tls.Config{before, after} {
		_, _, err = dial(t, addr, config)
		require.NoError(t, err)
	}
	f.replace(f.cf, next.PEM)
	_, _, err = dial(t, addr, before)
	require.ErrorContains(t, err, "remote error: tls: certificate required")
	_, _, err = dial(t, addr, after)
	require.NoError(t, err)
	require.NoError(t, say(old), "a connection that there was is left alone")
}

// Whom a client trusts, and what it shows, follows the files.
func TestClientFollowsItsFiles(t *testing.T) {
	server, f := newFixture(t), newFixture(t)
	addr := echo(t, server.files().Server(tls.RequireAndVerifyClientCert))
	files := f.files()
	_, _, err := dial(t, addr, files.Client(""))
	require.ErrorContains(t, err, "certificate signed by unknown authority")
	f.replace(f.cf, server.ca.PEM)
	_, _, err = dial(t, addr, files.Client(""))
	require.ErrorContains(t, err, "remote error: tls: unknown certificate authority", "the server does not know the client yet")
	f.put(server.issue("client"))
	_, shown, err := dial(t, addr, files.Client(""))
	require.NoError(t, err)
	require.Equal(t, "one", shown)
	_, _, err = dial(t, addr, files.Client("elsewhere"))
	require.ErrorContains(t, err, "not elsewhere")
}

func TestOldVersionsAreRefused(t *testing.T) {
	f := newFixture(t)
	addr := echo(t, f.files().Server(tls.NoClientCert, "h2"))
	config := client(t, f.ca, f.issue("client"))
	config.MaxVersion = tls.VersionTLS11
	config.MinVersion = tls.VersionTLS10
	_, _, err := dial(t, addr, config)
	require.ErrorContains(t, err, "protocol version")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		config.MaxVersion, config.NextProtos = version, []string{"http/1.1", "h2"}
		conn, _, err := dial(t, addr, config)
		require.NoError(t, err)
		require.Equal(t, version, conn.ConnectionState().Version)
		require.Equal(t, "h2", conn.ConnectionState().NegotiatedProtocol)
	}
}

func TestFaultsAtTheStart(t *testing.T) {
	f := newFixture(t)
	for want, o := range map[string]tlsfiles.Options{
		"needs both":   {CertFile: f.cert},
		"no such file": {CertFile: f.cert, KeyFile: f.key + ".none"},
		"none in":      {CAFile: f.key},
	} {
		_, err := tlsfiles.New(o)
		require.ErrorContains(t, err, want)
	}
	files, err := tlsfiles.New(tlsfiles.Options{CAFile: f.cf})
	require.NoError(t, err)
	require.Zero(t, files.Expiry())
}

// Many handshakes while files change: each shows one of the pairs, and none fails.
func TestHandshakesWhileFilesChange(t *testing.T) {
	f := newFixture(t)
	addr := echo(t, f.files().Server(tls.RequireAndVerifyClientCert))
	config := client(t, f.ca, f.issue("client"))
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conn, err := net.Dial("tcp", addr)
				if err != nil {
					f.Error(err)
					return
				}
				c := config.Clone()
				c.ServerName = "127.0.0.1"
				session := tls.Client(conn, c)
				if err := say(session); err != nil {
					f.Error(err)
				}
				_ = session.Close()
			}
		})
	}
	for range 30 {
		f.put(f.issue("next"))
	}
	close(stop)
	all.Wait()
	f.put(f.issue("last"))
	_, shown, err := dial(t, addr, config)
	require.NoError(t, err)
	require.Equal(t, "last", shown)
}
