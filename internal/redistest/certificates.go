package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
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

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCertificates(dir string, clientsNeedOne bool) (*Certificates, error) {
	in := func(name string) string { return filepath.Join(dir, name) }
	c := &Certificates{
		CA: in("ca.crt"), Cert: in("server.crt"), Key: in("server.key"), ClientCert: in("client.crt"), ClientKey: in("client.key"),
		clientsNeedOne: clientsNeedOne,
	}
	var ca authority
	signed, err := ca.issue("redistest authority", c.CA, in("ca.key"))
	if err != nil {
		return nil, err
	}
	if _, err := signed.issue("redis-server", c.Cert, c.Key); err != nil {
		return nil, err
	}
	_, err = signed.issue("client", c.ClientCert, c.ClientKey)
	return c, err
}

// issue makes a key and a certificate for name, and writes both. Without a certificate of its own, the authority issues that.
func (a *authority) issue(name, certFile, keyFile string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	cert := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:     []string{"localhost"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},

		BasicConstraintsValid: true,
	}
	signer := a
	if a.cert == nil {
		cert.IsCA, cert.KeyUsage = true, x509.KeyUsageCertSign
		signer = &authority{cert: cert, key: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		return nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return &authority{cert: cert, key: key}, errors.Join(
		writePEM(certFile, "CERTIFICATE", der), writePEM(keyFile, "PRIVATE KEY", keyDER))
}

func writePEM(path, kind string, der []byte) error {
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
