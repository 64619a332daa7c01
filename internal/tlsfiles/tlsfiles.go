// Package tlsfiles makes TLS configurations of files and follows them: what stands in the files acts on the next handshake, and
// leaves the connections that there are alone. Files that cannot be used leave what was in force.
//
// Nothing runs in the background. Each handshake, and each call of [Files.Expiry], reads the files, which is little beside what a
// handshake costs. So any way of changing them works: a new file by rename, a directory behind a symbolic link, writing in place.
package tlsfiles

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Options name the files, all in PEM form.
type Options struct {
	// CertFile and KeyFile are shown to the other side: both or neither.
	CertFile, KeyFile string
	// CAFile are the certificates of those who may vouch for the other side. Empty: the system's for a client; a server then asks
	// nobody for a certificate.
	CAFile string
	// OnReload, if set, is told once when other files have come into force (nil), and once why files cannot be used, which leaves the
	// old ones in force. A handshake waits for it.
	OnReload func(error)
}

// Files are the files of one server or client. Safe for concurrent use. Make them with [New].
type Files struct {
	o       Options
	inForce atomic.Pointer[material]

	reading sync.Mutex // held by the one who reads the files: nobody waits for a disk that hangs, but that one
	seen    contents   // when they were read last, sound or not
}

// material is what sound files gave.
type material struct {
	own     []tls.Certificate // none or one
	cas     *x509.CertPool    // nil: the system's
	begins  time.Time         // the last of the own certificates to be valid; zero: there are none
	expires time.Time         // the first of them to end; zero: there are none
}

// New reads the files. The error says what is wrong with them, and never quotes them.
func New(o Options) (*Files, error) {
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("a certificate needs both its file and that of its key")
	}
	if o.OnReload == nil {
		o.OnReload = func(error) {}
	}
	f := &Files{o: o}
	now, seen, err := o.load()
	if err != nil {
		return nil, err
	}
	f.seen = seen
	f.inForce.Store(now)
	return f, nil
}

// Server is the configuration of a server that speaks the protocols, the best first. It needs a certificate. With a CAFile, clients are asked
// for one as auth says. Sessions are not resumed: a client that must not connect any more would still be let in by its ticket.
func (f *Files) Server(auth tls.ClientAuthType, protocols ...string) *tls.Config {
	config := base()
	config.NextProtos = protocols
	config.SessionTicketsDisabled = true
	config.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) {
		now := f.current()
		c := base()
		c.NextProtos = protocols
		c.SessionTicketsDisabled = true
		c.Certificates = now.own
		if now.cas != nil {
			c.ClientAuth, c.ClientCAs = auth, now.cas
		}
		return c, nil
	}
	return config
}

// Client is the configuration for one new connection to a server that shows a certificate for serverName; empty: for the host that is
// dialled.
func (f *Files) Client(serverName string) *tls.Config {
	now := f.current()
	config := base()
	config.ServerName, config.RootCAs, config.Certificates = serverName, now.cas, now.own
	return config
}

// Expiry is when the first of the own certificates in force ends. Zero: there are none.
func (f *Files) Expiry() time.Time { return f.current().expires }

// base is for either side. Of TLS 1.2 it leaves what HTTP/2 forbids; TLS 1.3 has no choice.
func base() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		CipherSuites: []uint16{
			tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
			tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
			tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
		},
	}
}

// current is what the files hold now, or held when they could be used last.
func (f *Files) current() *material {
	if !f.reading.TryLock() {
		return f.inForce.Load()
	}
	defer f.reading.Unlock()
	seen := f.o.read()
	old := f.inForce.Load()
	if seen.equal(&f.seen) {
		return old
	}
	next, seen, err := f.o.load()
	if err == nil {
		err = worse(next, old, time.Now())
	}
	f.seen = seen
	if err == nil {
		f.inForce.Store(next)
		old = next
	}
	f.o.OnReload(err)
	return old
}

// worse is an error if next is no use and old is.
func worse(next, old *material, now time.Time) error {
	if now.Before(next.begins) && !now.Before(old.begins) && now.Before(old.expires) {
		return fmt.Errorf("the certificate is not valid before %s, the one in force is valid now", next.begins.UTC().Format(time.RFC3339))
	}
	if !next.expires.IsZero() && now.After(next.expires) && now.Before(old.expires) {
		return fmt.Errorf("the certificate has expired on %s, the one in force has not", next.expires.UTC().Format(time.RFC3339))
	}
	return nil
}
