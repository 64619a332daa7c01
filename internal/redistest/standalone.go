package redistest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

const serverBinary = "redis-server"

// Find returns the path of redis-server, or an error that says how to get it.
func Find() (string, error) {
	path, err := exec.LookPath(serverBinary)
	if err != nil {
		return "", fmt.Errorf("redis-server 7 or later is needed (Debian, Ubuntu: apt-get install redis-server): %w", err)
	}
	return path, nil
}

// NewStandalone starts one server. Whoever calls it stops it with [Server.Kill] and removes o.Dir, which must be set. On an error nothing is
// left running.
func NewStandalone(ctx context.Context, o Options) (*Server, error) {
	s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	server := s.server(0, "redis")
	return server, server.start(ctx)
}

// setup is what the servers of one run have in common.
type setup struct {
	o     Options
	files *Certificates
	shim  string // path of the library that moves clocks; empty: clocks stand firm
}

func prepare(ctx context.Context, o Options) (*setup, error) {
	if _, err := Find(); err != nil {
		return nil, err
	}
	if o.Dir == "" {
		return nil, fmt.Errorf("a directory is needed")
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	s := &setup{o: o}
	var err error
	if o.TLS {
		if s.files, err = newCertificates(o.Dir, o.ClientCerts); err != nil {
			return nil, err
		}
	}
	if o.MovingClock {
		s.shim, err = buildShim(ctx, o.Dir)
	}
	return s, err
}

// server makes server i of the run, not started yet.
func (s *setup) server(i int, name string) *Server {
	server := &Server{Host: "127.0.0.1", o: s.o, dir: s.o.Dir + "/" + name, Files: s.files}
	if i < len(s.o.Ports) {
		server.Port, server.fixed = s.o.Ports[i], true
	}
	if s.o.UnixSocket {
		server.Socket = server.path("redis.sock")
	}
	if s.shim != "" {
		server.clock = &clock{shim: s.shim, file: server.path("clock")}
	}
	return server
}
