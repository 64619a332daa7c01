package app

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/envoy-rls/envoy-rls/internal/access"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/internal/tlsfiles"
)

// TLSOptions are the files of a server, in PEM form, read anew for each connection. The zero value: no TLS.
type TLSOptions struct {
	// CertFile and KeyFile are shown to clients: both or neither.
	CertFile, KeyFile string
	// ClientCAFile are the certificates of those who vouch for clients. Empty: clients are not asked for a certificate.
	ClientCAFile string
}

func (o TLSOptions) given() bool { return o.CertFile != "" }

func (o TLSOptions) check(name string) error {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return fmt.Errorf("%s-tls-cert-file, %s-tls-key-file: want both or neither", name, name)
	case o.ClientCAFile != "" && o.CertFile == "":
		return fmt.Errorf("%s-tls-client-ca-file: clients are asked for a certificate by TLS only: want %s-tls-cert-file and %s-tls-key-file, too", name, name, name)
	}
	return nil
}

// What TLS is used for, in metrics and in the log.
const (
	useGRPC  = "grpc"
	useAdmin = "admin"
	useRedis = "redis"
)

// security is what there is of TLS, and who may change things.
type security struct {
	grpcFiles, adminFiles atomic.Pointer[tlsfiles.Files] // nil: no TLS, or not started
}

func (o *Options) checkSecurity() error {
	return errors.Join(o.GRPCTLS.check("grpc"), o.AdminTLS.check("admin"), checkDebugAddr(o.DebugAddr))
}

// checkDebugAddr: profiles show what is in memory to everybody who asks.
func checkDebugAddr(addr string) error {
	if addr == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("debug-addr: %w", err)
	}
	if isLoopback(host) {
		return nil
	}
	return fmt.Errorf("debug-addr: %s can be reached from elsewhere, and profiles show too much: want an address of loopback, such as 127.0.0.1:6060, or none", addr)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// securityMetrics are what of metrics.Options depends on TLS and on who may change things.
func (a *App) securityMetrics(o *metrics.Options) {
	s := &o.Security
	for use, in := range map[string]bool{useGRPC: a.opts.GRPCTLS.given(), useAdmin: a.opts.AdminTLS.given(), useRedis: a.opts.Redis.certificates()} {
		if in {
			s.Uses = append(s.Uses, use)
		}
	}
	for _, reason := range access.Reasons() {
		s.Reasons = append(s.Reasons, string(reason))
	}
	s.Certificates = a.certificates
}

// certificates tells when they end. That reads the files, so that they are looked at at each scrape even if nobody connects.
func (a *App) certificates() map[string]time.Time {
	ends := map[string]time.Time{}
	for use, files := range map[string]*tlsfiles.Files{useGRPC: a.grpcFiles.Load(), useAdmin: a.adminFiles.Load()} {
		if files != nil {
			ends[use] = files.Expiry()
		}
	}
	if a.shared != nil {
		ends[useRedis] = a.shared.Redis.CertificateExpiry()
	}
	return ends
}

// certificatesChanged takes note of other files for a use, and of those that are of none.
func (a *App) certificatesChanged(use string) func(error) {
	return func(err error) {
		a.metrics.OnCertificates(use, err)
		if err != nil {
			a.log.Error("certificate files cannot be used; what they held before stays", "use", use, "error", err)
			return
		}
		a.log.Info("certificates loaded", "use", use)
	}
}

func (a *App) openTLS(use string, o TLSOptions) (*tlsfiles.Files, error) {
	files, err := tlsfiles.New(tlsfiles.Options{CertFile: o.CertFile, KeyFile: o.KeyFile, CAFile: o.ClientCAFile, OnReload: a.certificatesChanged(use)})
	if err != nil {
		return nil, fmt.Errorf("%s-tls: %w", use, err)
	}
	return files, nil
}

// grpcTLS are the options of a server with TLS: none if there is none.
func (a *App) grpcTLS() ([]grpc.ServerOption, error) {
	if !a.opts.GRPCTLS.given() {
		return nil, nil
	}
	files, err := a.openTLS(useGRPC, a.opts.GRPCTLS)
	if err != nil {
		return nil, err
	}
	a.grpcFiles.Store(files)
	failed := a.handshakeFailed(useGRPC)
	return []grpc.ServerOption{grpc.Creds(watch(files.Server(tls.RequireAndVerifyClientCert, "h2"), failed))}, nil
}

// adminTLS is nil if there is none. Who shows no certificate may still look.
func (a *App) adminTLS() (*tls.Config, error) {
	if !a.opts.AdminTLS.given() {
		return nil, nil
	}
	files, err := a.openTLS(useAdmin, a.opts.AdminTLS)
	if err != nil {
		return nil, err
	}
	a.adminFiles.Store(files)
	return files.Server(tls.VerifyClientCertIfGiven, "h2", "http/1.1"), nil
}

// handshakeFailed takes note of connections that did not come to be: an Envoy that is refused lets its requests through, and says nothing.
func (a *App) handshakeFailed(use string) func(from string, why error) {
	log := a.sparing()
	return func(from string, why error) {
		a.metrics.OnHandshakeFailed(use)
		log.log(slog.LevelWarn, "TLS handshake failed", "server", use, "from", from, "error", why)
	}
}

// openGate reads the tokens of those who may change things.
func (a *App) openGate() (*access.Gate, error) {
	refused := a.sparing()
	gate, err := access.New(access.Options{
		TokenFile: a.opts.AdminTokenFile, Certificates: a.opts.AdminTLS.ClientCAFile != "",
		OnRefused: func(r *access.Refused) {
			a.metrics.OnRefused(string(r.Reason))
			refused.log(slog.LevelWarn, "a change was refused", "reason", string(r.Reason))
		},
		OnTokens: func(err error) {
			a.metrics.OnTokens(err)
			if err != nil {
				a.log.Error("the token file cannot be used; no token is good", "error", err)
				return
			}
			a.log.Info("tokens loaded")
		},
	})
	if err != nil {
		return nil, fmt.Errorf("admin-token-file: %w", err)
	}
	return gate, nil
}

// warnOfSecrets tells of secrets that others can come by.
func (a *App) warnOfSecrets() {
	o := &a.opts
	for _, path := range []string{o.AdminTokenFile, o.GRPCTLS.KeyFile, o.AdminTLS.KeyFile, o.Redis.PasswordFile, o.Redis.SentinelPasswordFile, o.Redis.KeyFile, o.PolicyDSNFile} {
		if info, err := os.Stat(path); err == nil && readableByAll(info.Mode()) {
			a.log.Warn("a file with a secret can be read by every user of this machine", "file", path, "mode", info.Mode().String())
		}
	}
	host, _, err := net.SplitHostPort(o.AdminAddr)
	if o.AdminTokenFile != "" && !o.AdminTLS.given() && err == nil && !isLoopback(host) {
		a.log.Warn("tokens come over the network as they are: want --admin-tls-cert-file, or an --admin-addr of loopback", "admin", o.AdminAddr)
	}
}

func readableByAll(mode fs.FileMode) bool { return mode.IsRegular() && mode.Perm()&0o004 != 0 }
