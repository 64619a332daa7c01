package main

import (
	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/app"
)

// securityFlags say what the servers show, whom they trust, and who may change things.
func securityFlags(cmd *cobra.Command, opts *app.Options) {
	flags := cmd.Flags()
	flags.StringVar(&opts.GRPCTLS.CertFile, "grpc-tls-cert-file", "", "certificate to show Envoy (PEM): makes gRPC TLS")
	flags.StringVar(&opts.GRPCTLS.KeyFile, "grpc-tls-key-file", "", "its key (PEM)")
	flags.StringVar(&opts.GRPCTLS.ClientCAFile, "grpc-tls-client-ca-file", "", "who vouches for Envoys (PEM): others cannot connect")
	flags.StringVar(&opts.AdminTLS.CertFile, "admin-tls-cert-file", "", "certificate to show on the admin address (PEM): makes it HTTPS")
	flags.StringVar(&opts.AdminTLS.KeyFile, "admin-tls-key-file", "", "its key (PEM)")
	flags.StringVar(&opts.AdminTLS.ClientCAFile, "admin-tls-client-ca-file", "", "who vouches for people that may change things (PEM)")
	flags.StringVar(&opts.AdminTokenFile, "admin-token-file", "", "tokens of those who may change things: a line each, NAME TOKEN")
}
