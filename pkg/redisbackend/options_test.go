package redisbackend_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

func TestOptionsThatAreRefused(t *testing.T) {
	for _, test := range []struct {
		name string
		o    redisbackend.Options
		want string
	}{
		{"no URL", redisbackend.Options{}, "no URL"},
		{"no scheme", redisbackend.Options{URLs: []string{"secret@host"}}, "URL 1: want redis://, rediss:// or unix://"},
		{"other scheme", redisbackend.Options{URLs: []string{"http://:secret@host"}}, "unknown scheme"},
		{"port", redisbackend.Options{URLs: []string{"redis://:secret@host:secret"}}, "want a port from 1 to 65535"},
		{"port 0", redisbackend.Options{URLs: []string{"redis://host:0"}}, "want a port from 1 to 65535"},
		{"IPv6 without brackets", redisbackend.Options{URLs: []string{"redis://::1"}}, "an IPv6 address in brackets"},
		{"database", redisbackend.Options{URLs: []string{"redis://:secret@host/secret"}}, "want a database number"},
		{"parameter", redisbackend.Options{URLs: []string{"redis://host?secret=1"}}, "unknown parameter"},
		{"parameters", redisbackend.Options{URLs: []string{"redis://host?%secret"}}, "after the question mark"},
		{"socket", redisbackend.Options{URLs: []string{"unix://secret/redis.sock"}}, "want an absolute path"},
		{"escape", redisbackend.Options{URLs: []string{"redis://:secret%zz@host"}}, "write it %25"},
		{"users differ", redisbackend.Options{URLs: []string{"redis://:secret@a", "redis://:secret2@b"}}, "URL 2 differs from the first"},
		{"two passwords", redisbackend.Options{URLs: []string{"redis://:secret@a"}, PasswordFile: "/f"}, "want one of them"},
		{"mode", redisbackend.Options{URLs: []string{"redis://a"}, Mode: "single"}, `unknown mode "single"`},
		{"sentinel without name", redisbackend.Options{URLs: []string{"redis://a"}, Mode: "sentinel"}, "master_name"},
		{"name without sentinel", redisbackend.Options{URLs: []string{"redis://a?master_name=m"}, Mode: "cluster"}, "want mode sentinel"},
		{"standalone twice", redisbackend.Options{URLs: []string{"redis://a", "redis://b"}, Mode: "standalone"}, "want one URL"},
		{"database of a cluster", redisbackend.Options{URLs: []string{"redis://a/1", "redis://b/1"}}, "database 0 only"},
		{"pool", redisbackend.Options{URLs: []string{"redis://a"}, PoolSize: 1}, "at least 2"},
		{"timeouts", redisbackend.Options{URLs: []string{"redis://a"}, Timeout: time.Second, ConnectionTimeout: 1}, "no shorter"},
		{"two passwords for sentinels", redisbackend.Options{URLs: []string{"redis://a?master_name=m&sentinel_password=p"}, SentinelPasswordFile: "f"}, "want one of them"},
		{"a password for no sentinel", redisbackend.Options{URLs: []string{"redis://a"}, SentinelPasswordFile: "f"}, "there is no sentinel"},
		{"half a certificate", redisbackend.Options{URLs: []string{"rediss://a"}, TLS: redisbackend.TLSOptions{KeyFile: "k"}}, "both"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := redisbackend.New(test.o)
			require.ErrorContains(t, err, test.want)
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestOptionsThatAreGood(t *testing.T) {
	for _, urls := range [][]string{
		{"redis://localhost"},
		{"redis://"},
		{"redis://[::1]"},
		{"redis://[::1]:7000/3"},
		{"rediss://user@host:1"},
		{"redis://a:1", "redis://b:2"},
		{"redis://a:1?master_name=m", "redis://b:2?master_name=m"},
		{"redis://a/0?sentinel_username=u&sentinel_password=p&master_name=m"},
		{"unix:///run/redis.sock"},
		{"unix://u:p@/run/redis.sock?db=2"},
	} {
		_, err := redisbackend.New(redisbackend.Options{URLs: urls})
		require.NoError(t, err, "%v", urls)
	}
}

// TestFieldOddPasswords connects with passwords that would end a URL's user, host or path.
func TestFieldOddPasswords(t *testing.T) {
	const password = "p@ss:w/o,r#d?50 &=" //nolint:gosec // of a server of this test
	server := redistest.StartStandalone(t, redistest.Options{Config: []string{
		`user odd on >` + password[:15] + ` ~* &* +@all`, `user per% on >50% ~* &* +@all`,
	}})
	b := take(key("a", "password"))
	address := "@" + server.Addr()
	for _, url := range []string{
		"redis://odd:" + password[:15] + address,
		"redis://odd:p%40ss%3Aw%2Fo%2Cr%23d%3F50" + address,
		"redis://per%25:50%25" + address,
	} {
		s := open(t, redisbackend.Options{URLs: []string{url}, Timeout: patient})
		require.NoError(t, one(t.Context(), s, b).Err, url)
	}
	var told []string
	s := open(t, redisbackend.Options{
		URLs: []string{"redis://odd:wrong-secret" + address}, Timeout: time.Second, Mode: "standalone",
		OnFailure: func(f *redisbackend.Failure) { told = append(told, f.Error.Error()) },
	})
	r := one(t.Context(), s, b)
	require.Equal(t, redisbackend.ReasonNoAuth, reason(r), "%v", r.Err)
	require.NotContains(t, strings.Join(told, " ")+r.Err.Error(), "secret")
}

func TestFieldPasswordRotated(t *testing.T) {
	server := redistest.StartStandalone(t, redistest.Options{Password: "first"})
	file := filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(file, []byte("first\n"), 0o600))
	p := redistest.StartProxy(t, server)
	s := open(t, redisbackend.Options{URLs: []string{p.URL()}, PasswordFile: file, Timeout: time.Second})
	b := take(key("a", "rotated"))
	require.NoError(t, one(t.Context(), s, b).Err)
	_, err := server.Do(t.Context(), "CONFIG", "SET", "requirepass", "second")
	require.NoError(t, err)
	for range 100 {
		require.NoError(t, one(t.Context(), s, b).Err, "connections outlive the password")
	}
	p.Cut()
	require.Eventually(t, func() bool { return reason(one(t.Context(), s, b)) == redisbackend.ReasonNoAuth }, patient, time.Millisecond)
	require.NoError(t, os.WriteFile(file, []byte("second"), 0o600))
	eventually(t, s, b)
}

func TestPasswordFileMissing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	s, err := redisbackend.New(redisbackend.Options{URLs: []string{"redis://localhost"}, PasswordFile: file})
	require.NoError(t, err)
	require.ErrorIs(t, s.Start(t.Context()), os.ErrNotExist)
	s.Close()
	require.NoError(t, os.WriteFile(file, []byte(" \n"), 0o600))
	require.ErrorContains(t, s.Start(t.Context()), "empty")
}

func TestUnixSocket(t *testing.T) {
	server := redistest.StartStandalone(t, redistest.Options{UnixSocket: true})
	s := open(t, redisbackend.Options{URLs: []string{"unix://" + server.Socket}, Timeout: patient})
	require.NoError(t, one(t.Context(), s, take(key("a", "socket"))).Err)
}

func TestTLS(t *testing.T) {
	server := redistest.StartStandalone(t, redistest.Options{TLS: true, ClientCerts: true})
	files := server.Files
	mutual := redisbackend.TLSOptions{CAFile: files.CA, CertFile: files.ClientCert, KeyFile: files.ClientKey}
	b := take(key("a", "tls"))
	with := func(o redisbackend.TLSOptions) *redisbackend.Store {
		return open(t, redisbackend.Options{URLs: []string{server.URL()}, TLS: o, Timeout: patient, Mode: "standalone"})
	}
	require.NoError(t, one(t.Context(), with(mutual), b).Err)

	other := mutual
	other.ServerName = "localhost"
	require.NoError(t, one(t.Context(), with(other), b).Err)
	other.ServerName = "elsewhere"
	refused(t, with(other), b, "certificate is valid for")

	other = mutual
	other.CAFile = ""
	refused(t, with(other), b, "certificate signed by unknown authority")

	require.Error(t, one(t.Context(), with(redisbackend.TLSOptions{CAFile: files.CA}), b).Err, "without a certificate of its own")
}

// refused waits until a call fails in a way. On a busy machine it may first take too long to connect.
func refused(t *testing.T, s *redisbackend.Store, b ratelimit.Bucket, why string) {
	t.Helper()
	var r ratelimit.Result
	require.Eventually(t, func() bool {
		r = one(t.Context(), s, b)
		return r.Err != nil && strings.Contains(r.Err.Error(), why)
	}, patient, time.Millisecond)
	require.Equal(t, redisbackend.ReasonDial, reason(r))
}

func TestTLSFilesAreReadAtTheStart(t *testing.T) {
	none := filepath.Join(t.TempDir(), "none.pem")
	empty := filepath.Join(t.TempDir(), "empty.pem")
	require.NoError(t, os.WriteFile(empty, nil, 0o600))
	for want, o := range map[string]redisbackend.TLSOptions{
		"no such file":         {CAFile: none},
		"none in " + empty:     {CAFile: empty},
		"certificate " + empty: {CertFile: empty, KeyFile: empty},
	} {
		s, err := redisbackend.New(redisbackend.Options{URLs: []string{"rediss://localhost"}, TLS: o})
		require.NoError(t, err)
		require.ErrorContains(t, s.Start(t.Context()), want)
	}
}
