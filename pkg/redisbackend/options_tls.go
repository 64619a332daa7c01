package redisbackend

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// config reads the files once, so that what is wrong with them is known at the start.
func (o TLSOptions) config() (*tls.Config, error) {
	config := &tls.Config{ServerName: o.ServerName, MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("certificates to trust: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificates to trust: none in %s", o.CAFile)
		}
	}
	if o.CertFile == "" {
		return config, nil
	}
	if _, err := o.certificate(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return o.certificate() }
	return config, nil
}

func (o TLSOptions) certificate() (*tls.Certificate, error) {
	c, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("client certificate: %w", err)
	}
	return &c, nil
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
		return "", fmt.Errorf("password: %w", err)
	}
	password := strings.TrimSpace(string(text))
	if password == "" {
		return "", errors.New("password: its file is empty")
	}
	return password, nil
}
