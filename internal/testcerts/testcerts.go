// Package testcerts makes certificates for tests, and for tools that run servers on loopback. They last a day.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Authority signs certificates.
type Authority struct {
	PEM []byte // its own certificate

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Leaf says what a certificate is like. It is good for a server on loopback, for one of that name, and for a client.
type Leaf struct {
	Name      string    // a host's, or empty
	URI       string    // a further name; may be empty
	NotBefore time.Time // zero: two days ago
	NotAfter  time.Time // zero: in a day
}

// Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// New makes an authority.
func New(name string) (*Authority, error) {
	cert, err := template(name)
	if err != nil {
		return nil, err
	}
	cert.IsCA, cert.KeyUsage = true, x509.KeyUsageCertSign
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	// What was signed has an id of the key, by which authorities of one name are told apart.
	cert, err = x509.ParseCertificate(der)
	return &Authority{PEM: encode("CERTIFICATE", der), cert: cert, key: key}, err
}

// Serial is the number of the authority's own certificate.
func (a *Authority) Serial() *big.Int { return a.cert.SerialNumber }

// Issue makes a key and its certificate.
func (a *Authority) Issue(l Leaf) (Pair, error) {
	cert, err := template(l.Name)
	if err != nil {
		return Pair{}, err
	}
	cert.DNSNames, cert.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	if l.Name != "" {
		cert.DNSNames = append(cert.DNSNames, l.Name)
	}
	if l.URI != "" {
		uri, err := url.Parse(l.URI)
		if err != nil {
			return Pair{}, err
		}
		cert.URIs = []*url.URL{uri}
	}
	if !l.NotBefore.IsZero() {
		cert.NotBefore = l.NotBefore
	}
	if !l.NotAfter.IsZero() {
		cert.NotAfter = l.NotAfter
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Pair{}, err
	}
	der, certErr := x509.CreateCertificate(rand.Reader, cert, a.cert, &key.PublicKey, a.key)
	keyDER, keyErr := x509.MarshalPKCS8PrivateKey(key)
	return Pair{encode("CERTIFICATE", der), encode("PRIVATE KEY", keyDER)}, errors.Join(certErr, keyErr)
}

// Write puts the pair into two files, each by a rename.
func (p Pair) Write(certFile, keyFile string) error {
	return errors.Join(Replace(certFile, p.Cert), Replace(keyFile, p.Key))
}

// Replace puts text into a file by a rename, for its owner only.
func Replace(path string, text []byte) error {
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

func template(name string) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-48 * time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},

		BasicConstraintsValid: true,
	}, err
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
