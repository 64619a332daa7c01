package tlsfiles

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
)

// mostBytes bounds a file: all authorities of a system are a quarter of that.
const mostBytes = 1 << 20

// contents are what stands in the files, or why that is not known.
type contents struct {
	cert, key, ca []byte
	fault         string
}

func (c *contents) equal(o *contents) bool {
	return c.fault == o.fault && bytes.Equal(c.cert, o.cert) && bytes.Equal(c.key, o.key) && bytes.Equal(c.ca, o.ca)
}

// load reads the files and makes something of them. Of two files that are changed together, one may have been read before and one after:
// so a fault is believed only if it is there twice.
func (o *Options) load() (m *material, seen contents, err error) {
	for range 2 {
		seen = o.read()
		if m, err = o.parse(&seen); err == nil {
			break
		}
	}
	return m, seen, err
}

// read reads all files.
func (o *Options) read() (c contents) {
	var faults []error
	for _, file := range []struct {
		what, path string
		to         *[]byte
	}{{"certificate", o.CertFile, &c.cert}, {"key", o.KeyFile, &c.key}, {"certificates to trust", o.CAFile, &c.ca}} {
		if file.path == "" {
			continue
		}
		var err error
		if *file.to, err = readFile(file.path); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", file.what, err))
		}
	}
	if err := errors.Join(faults...); err != nil {
		c.fault = err.Error()
	}
	return c
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	text, err := io.ReadAll(io.LimitReader(file, mostBytes+1))
	if err == nil && len(text) > mostBytes {
		err = fmt.Errorf("%s has more than %d bytes", path, mostBytes)
	}
	return text, err
}

// parse makes something of what was read.
func (o *Options) parse(c *contents) (*material, error) {
	if c.fault != "" {
		return nil, errors.New(c.fault)
	}
	m := &material{}
	if o.CAFile != "" {
		m.cas = x509.NewCertPool()
		if !m.cas.AppendCertsFromPEM(c.ca) {
			return nil, fmt.Errorf("certificates to trust: none in %s", o.CAFile)
		}
	}
	if o.CertFile == "" {
		return m, nil
	}
	own, err := tls.X509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", o.CertFile, o.KeyFile, err)
	}
	for _, der := range own.Certificate {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("certificate %s: %w", o.CertFile, err)
		}
		if m.expires.IsZero() || cert.NotAfter.Before(m.expires) {
			m.expires = cert.NotAfter
		}
		if cert.NotBefore.After(m.begins) {
			m.begins = cert.NotBefore
		}
	}
	m.own = []tls.Certificate{own}
	return m, nil
}
