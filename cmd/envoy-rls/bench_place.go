package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/floor"
	"github.com/envoy-rls/envoy-rls/internal/bench/lab"
)

// place is where a benchmark is made.
type place struct {
	options *benchmark
	dir     string // of a lab, temporary
	binary  string // of a lab
	floor   *lab.Side
	redis   *lab.Redis
	remote  *lab.Side // without a lab
}

func (b *benchmark) place(ctx context.Context) (*place, error) {
	p := &place{options: b}
	open := p.openLab
	if b.lab.value == "" {
		open = p.find
	}
	if err := open(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *place) openLab(ctx context.Context) (err error) {
	if p.dir, err = os.MkdirTemp("", "envoy-rls-bench"); err != nil {
		return err
	}
	if p.binary, err = os.Executable(); err != nil {
		return err
	}
	if !p.options.noFloor {
		if p.floor, err = lab.StartFloor(ctx, p.dir, p.binary, "bench", "floor"); err != nil {
			return err
		}
	}
	if p.options.lab.value == "memory" {
		return nil
	}
	p.redis, err = lab.StartRedis(ctx, p.dir, p.options.lab.value == "cluster")
	return err
}

// find looks for what can be known of a service that runs.
func (p *place) find(ctx context.Context) (err error) {
	b := p.options
	side := &lab.Side{Name: "service", Addr: b.addr, Admin: b.admin, Pid: b.pid}
	if side.TLS, err = b.tls.config(); err != nil {
		return err
	}
	if side.Pid == 0 {
		side.Pid, _ = lab.FindProcess(b.addr) // elsewhere, or somebody else's: its CPU is not known
	}
	if len(b.redis) > 0 {
		if p.redis, err = lab.ConnectRedis(ctx, b.redis); err != nil {
			return err
		}
		side.Redis = p.redis
	}
	p.remote = side
	return nil
}

// service gives the one to measure in a scenario: in a lab a new one with the scenario's policies and no buckets.
func (p *place) service(ctx context.Context, s *bench.Scenario) (*lab.Side, func(), error) {
	if p.remote != nil {
		return p.remote, func() {}, nil
	}
	if p.redis != nil {
		if err := p.redis.Empty(ctx); err != nil {
			return nil, nil, err
		}
	}
	path := filepath.Join(p.dir, "policies.yaml")
	if err := os.WriteFile(path, []byte(s.Policies), 0o600); err != nil {
		return nil, nil, err
	}
	service := lab.Service{Name: "envoy-rls", Binary: p.binary, Policies: path, Args: p.options.serveArgs, Redis: p.redis, Dir: p.dir}
	side, err := service.Start(ctx)
	if err != nil {
		return nil, nil, err
	}
	return side, side.Stop, nil
}

func (p *place) close() {
	if p.dir == "" {
		return // nothing here is ours
	}
	if p.floor != nil {
		p.floor.Stop()
	}
	if p.redis != nil {
		p.redis.Close()
	}
	_ = os.RemoveAll(p.dir) // a leftover in the temporary folder harms nobody
}

// newFloor is what bench starts to compare with.
func newFloor() *cobra.Command {
	var addr string
	cmd := &cobra.Command{
		Use:    "floor",
		Short:  "Answer rate limit calls without deciding anything",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var config net.ListenConfig
			l, err := config.Listen(cmd.Context(), "tcp", addr)
			if err != nil {
				return failed(err)
			}
			if err := floor.Serve(cmd.Context(), l); err != nil {
				return failed(err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&addr, "grpc-addr", "127.0.0.1:8081", "where to answer")
	return cmd
}

// clientTLS is how bench trusts and is trusted.
type clientTLS struct {
	on                  bool
	ca, cert, key, name string
}

func (c *clientTLS) flags(f *pflag.FlagSet) {
	f.BoolVar(&c.on, "tls", false, "with --addr: call over TLS")
	f.StringVar(&c.ca, "ca-file", "", "with --tls: who is trusted, in PEM; empty: whom the system trusts")
	f.StringVar(&c.cert, "cert-file", "", "with --tls: certificate to show, in PEM")
	f.StringVar(&c.key, "key-file", "", "with --tls: its key, in PEM")
	f.StringVar(&c.name, "server-name", "", "with --tls: the name that the server must have; empty: that of --addr")
}

// config is nil without TLS.
func (c *clientTLS) config() (*tls.Config, error) {
	if !c.on {
		if c.ca+c.cert+c.key+c.name != "" {
			return nil, errors.New("--ca-file, --cert-file, --key-file and --server-name go with --tls")
		}
		return nil, nil
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.name}
	if c.ca != "" {
		pem, err := os.ReadFile(c.ca)
		if err != nil {
			return nil, err
		}
		out.RootCAs = x509.NewCertPool()
		if !out.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", c.ca)
		}
	}
	if c.cert+c.key == "" {
		return out, nil
	}
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return nil, err
	}
	out.Certificates = []tls.Certificate{pair}
	return out, nil
}
