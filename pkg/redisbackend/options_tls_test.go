package redisbackend_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/internal/testcerts"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// certificates are those of a client, in files of its own.
type certificates struct {
	redisbackend.TLSOptions
	t          *testing.T
	sound, bad atomic.Int64 // how often other files came, and could not be used
}

// follow copies what a client of the server needs now.
func (c *certificates) follow(files *redistest.Certificates) {
	c.t.Helper()
	for from, to := range map[string]string{files.CA: c.CAFile, files.ClientCert: c.CertFile, files.ClientKey: c.KeyFile} {
		text, err := os.ReadFile(from)
		require.NoError(c.t, err)
		require.NoError(c.t, testcerts.Replace(to, text))
	}
}

func newCertificates(t *testing.T, files *redistest.Certificates) *certificates {
	t.Helper()
	dir := t.TempDir()
	c := &certificates{t: t, TLSOptions: redisbackend.TLSOptions{
		CAFile: filepath.Join(dir, "ca"), CertFile: filepath.Join(dir, "cert"), KeyFile: filepath.Join(dir, "key"),
	}}
	c.OnReload = func(err error) {
		if err != nil {
			c.bad.Add(1)
			return
		}
		c.sound.Add(1)
	}
	c.follow(files)
	return c
}

// What stands in the files acts on the next connection, to a server and to the nodes of a cluster.
func TestCertificatesAreRenewed(t *testing.T) {
	setups := map[string]func(t *testing.T) (*redistest.Server, []string){
		"one server": func(t *testing.T) (*redistest.Server, []string) {
			s := redistest.StartStandalone(t, redistest.Options{TLS: true, ClientCerts: true})
			return s, []string{s.URL()}
		},
		"a cluster of one": func(t *testing.T) (*redistest.Server, []string) {
			c := redistest.StartCluster(t, redistest.Options{TLS: true, ClientCerts: true, Primaries: 1, ReplicasEach: -1, Config: []string{"cluster-announce-ip 127.0.0.1"}})
			return c.Nodes[0], c.URLs()
		},
	}
	for name, setup := range setups {
		t.Run(name, func(t *testing.T) {
			server, urls := setup(t)
			own := newCertificates(t, server.Files)
			s := open(t, redisbackend.Options{URLs: urls, TLS: own.TLSOptions, Timeout: patient})
			b := take(key("a", "renewed"))
			require.Eventually(t, func() bool { return one(t.Context(), s, b).Err == nil }, patient, time.Millisecond)
			first := s.CertificateExpiry()
			require.False(t, first.IsZero())

			require.NoError(t, server.RenewCertificates(t.Context()))
			require.NoError(t, one(t.Context(), s, b).Err, "the connection stays")
			cut(t, server)
			require.Eventually(t, func() bool { r := one(t.Context(), s, b); return r.Err != nil && reason(r) == redisbackend.ReasonDial }, patient, time.Millisecond,
				"the server has become one that nobody vouches for")

			require.NoError(t, os.WriteFile(own.KeyFile, []byte("half"), 0o600))
			require.Equal(t, first, s.CertificateExpiry(), "what cannot be used changes nothing")
			own.follow(server.Files)
			require.Eventually(t, func() bool { return one(t.Context(), s, b).Err == nil }, patient, time.Millisecond)
			require.EqualValues(t, 1, own.bad.Load())
			require.NotZero(t, own.sound.Load())
		})
	}
}

// cut ends all connections to a server.
func cut(t *testing.T, server *redistest.Server) {
	t.Helper()
	_, err := server.Do(context.Background(), "CLIENT", "KILL", "TYPE", "normal")
	require.NoError(t, err)
}
