package main

import (
	"net/http"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/tlsfiles"
)

// trust is by what a command knows the service that it asks, and is known to it, if that has TLS.
type trust struct{ caFile, serverName, certFile, keyFile string }

func (t *trust) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&t.caFile, "ca-file", "", "certificates to trust (PEM) instead of the system's, if the address is an https:// URL")
	cmd.Flags().StringVar(&t.serverName, "server-name", "", "what the service's certificate is for (default: the host of the address)")
	cmd.Flags().StringVar(&t.certFile, "cert-file", "", "certificate to show the service (PEM)")
	cmd.Flags().StringVar(&t.keyFile, "key-file", "", "its key (PEM)")
}

func (t *trust) client() (*http.Client, error) {
	files, err := tlsfiles.New(tlsfiles.Options{CAFile: t.caFile, CertFile: t.certFile, KeyFile: t.keyFile})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: files.Client(t.serverName), ForceAttemptHTTP2: true}}, nil
}
