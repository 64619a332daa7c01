package redistest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"

	"github.com/envoy-rls/envoy-rls/internal/testcerts"
)

// Certificates are the files of a run with TLS, in PEM. One authority signed both certificates.
type Certificates struct {
	CA         string // path of the authority's certificate
	Cert, Key  string // paths of the servers' certificate (for 127.0.0.1 and localhost) and key
	ClientCert string // path of a client's certificate
	ClientKey  string // path of its key

	clientsNeedOne bool
}

// ClientConfig is what a client that has a certificate needs to connect.
func (c *Certificates) ClientConfig() (*tls.Config, error) {
	text, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, errors.New(c.CA + " holds no certificate")
	}
	own, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS12}, nil
}

// config writes the lines of redis.conf.
func (c *Certificates) config(line func(string, ...any)) {
	line("tls-ca-cert-file %s", quote(c.CA))
	line("tls-cert-file %s", quote(c.Cert))
	line("tls-key-file %s", quote(c.Key))
	if c.clientsNeedOne {
		line("tls-auth-clients yes")
	} else {
		line("tls-auth-clients optional")
	}
}

func newCertificates(dir string, clientsNeedOne bool) (*Certificates, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	c := &Certificates{
		CA: in("ca.crt"), Cert: in("server.crt"), Key: in("server.key"), ClientCert: in("client.crt"), ClientKey: in("client.key"),
		clientsNeedOne: clientsNeedOne,
	}
	ca, err := testcerts.New("redistest authority")
	if err != nil {
		return nil, err
	}
	return c, errors.Join(testcerts.Replace(c.CA, ca.PEM), issue(ca, c.Cert, c.Key), issue(ca, c.ClientCert, c.ClientKey))
}

func issue(ca *testcerts.Authority, certFile, keyFile string) error {
	pair, err := ca.Issue(testcerts.Leaf{Name: "redistest"})
	if err != nil {
		return err
	}
	return pair.Write(certFile, keyFile)
}

// RenewCertificates writes the files anew, signed by a new authority, and has the server take them. The old authority is still
// trusted. Connections stay.
func (s *Server) RenewCertificates(ctx context.Context) error {
	ca, err := testcerts.New("redistest authority")
	if err != nil {
		return err
	}
	old, err := os.ReadFile(s.Files.CA)
	if err != nil {
		return err
	}
	set := func(args ...any) error {
		_, err := s.Do(ctx, append([]any{"CONFIG", "SET"}, args...)...)
		return err
	}
	// Nobody is shown a certificate before its signer is trusted.
	for _, step := range []func() error{
		func() error { return testcerts.Replace(s.Files.CA, append(old, ca.PEM...)) },
		func() error { return set("tls-ca-cert-file", s.Files.CA) },
		func() error { return issue(ca, s.Files.Cert, s.Files.Key) },
		func() error { return set("tls-cert-file", s.Files.Cert, "tls-key-file", s.Files.Key) },
		func() error { return issue(ca, s.Files.ClientCert, s.Files.ClientKey) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
