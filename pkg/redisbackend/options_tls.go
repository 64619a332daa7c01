package redisbackend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/tlsfiles"
)

// dialer connects with TLS by what the files hold at that moment. What is wrong with them now is an error.
func (c *client) dialer() (func(ctx context.Context, network, address string) (net.Conn, error), error) {
	o := &c.options.TLS
	files, err := tlsfiles.New(tlsfiles.Options{CertFile: o.CertFile, KeyFile: o.KeyFile, CAFile: o.CAFile, OnReload: o.OnReload})
	if err != nil {
		return nil, err
	}
	c.certificates.Store(files)
	plain := &net.Dialer{Timeout: dialTimeout, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d := tls.Dialer{NetDialer: plain, Config: files.Client(o.ServerName)}
		return d.DialContext(ctx, network, address)
	}, nil
}

// CertificateExpiry is when the certificate that is shown to the servers ends, as its file has it now. Zero: there is none, or the store was
// not started.
func (s *Store) CertificateExpiry() time.Time {
	if files := s.client.certificates.Load(); files != nil {
		return files.Expiry()
	}
	return time.Time{}
}

// credentials are asked for by go-redis for each new connection.
func (o *Options) credentials(e endpoint) func(context.Context) (username, password string, err error) {
	username := e.username
	if o.Username != "" {
		username = o.Username
	}
	return func(context.Context) (string, string, error) {
		if o.PasswordFile == "" {
			return username, e.password, nil
		}
		password, err := readPassword(o.PasswordFile)
		return username, password, err
	}
}

func readPassword(file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without the path, in whose place somebody may have given the password itself
		}
		return "", fmt.Errorf("password file: %w", err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", errors.New("password file: empty")
	}
	return password, nil
}
