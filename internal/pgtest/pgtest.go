// Package pgtest runs a real PostgreSQL for tests, on a free port of loopback, with a superuser whose password is [Password]. On Linux
// the server dies with the process that started it, however that ends.
package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/envoy-rls/envoy-rls/internal/childproc"
)

// User and Password are those of the superuser. The password has characters that connection strings trip over.
const (
	User     = "tester"
	Password = "p@ss:w/ord#1"
)

// Server is one PostgreSQL. Its methods are safe for concurrent use.
type Server struct {
	Port int // of 127.0.0.1

	bin string // directory of the binaries
	dir string // holds data/, the log and the socket

	mu      sync.Mutex
	process *childproc.Process
	names   int // databases made so far
}

// New makes a database cluster in dir, which must not exist, and starts a server on it. Whoever calls it stops it with [Server.Kill] and
// removes dir.
func New(ctx context.Context, dir string) (*Server, error) {
	bin, err := find()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir}
	if err := s.init(ctx); err != nil {
		return nil, err
	}
	for try := 1; ; try++ { // another program may take the port first
		if s.Port, err = childproc.FreePort(ctx); err != nil {
			return nil, err
		}
		err = s.Start(ctx)
		if err == nil || try == 3 || !strings.Contains(err.Error(), "Address already in use") {
			return s, err
		}
	}
}

// init makes the data directory, with a password for everybody who connects.
func (s *Server) init(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil { // the server's user has to come through
		return err
	}
	secret := filepath.Join(s.dir, "password")
	if err := os.WriteFile(secret, []byte(Password+"\n"), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(s.bin, "initdb"), "--pgdata", s.data(), "--username", User, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--no-locale", "--no-sync")
	cmd.Dir = s.dir
	if err := asServer(cmd, s.dir, secret); err != nil {
		return err
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Start starts the server again, on its port and with its data, and returns when it answers.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), "-D", s.data(), "-p", strconv.Itoa(s.Port), "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=50", "-c", "shared_buffers=16MB")
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.dir, log, log
	if err := asServer(cmd, s.dir); err != nil {
		return err
	}
	s.process, err = childproc.Start(cmd)
	if err := errors.Join(err, log.Close()); err != nil {
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := s.awaitLocked(ctx); err != nil {
		s.process.Kill()
		return err
	}
	return nil
}

func (s *Server) awaitLocked(ctx context.Context) error {
	for {
		err := s.ping(ctx)
		if err == nil {
			return nil
		}
		if !s.process.Running() {
			return fmt.Errorf("postgres ended; its log:\n%s", s.log())
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for postgres: %w; last: %w", ctx.Err(), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

func (s *Server) log() string {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}

// Kill ends the server at once, and all connections with it. What was committed is there when it is started again.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return
	}
	_ = s.process.Resume() // a paused server cannot end its children; both fail only if it has ended
	_ = s.process.Quit()
	select {
	case <-s.process.Done():
	case <-time.After(10 * time.Second):
		s.process.Kill()
	}
}

// Pause stops the server where it is: connections stay open and new ones are accepted by the system, but nothing answers. Processes that
// serve a connection already go on.
func (s *Server) Pause() error { return s.process.Pause() }

// Resume lets a paused server go on.
func (s *Server) Resume() error { return s.process.Resume() }

// DSN is the connection string for a database of the server, as the superuser.
func (s *Server) DSN(database string) string { return s.DSNFor(User, Password, database) }

// DSNFor is the connection string for a database of the server.
func (s *Server) DSNFor(user, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.UserPassword(user, password), Host: "127.0.0.1:" + strconv.Itoa(s.Port), Path: "/" + database, RawQuery: "sslmode=disable"}
	return u.String()
}

// NewDatabase makes an empty database and gives its connection string.
func (s *Server) NewDatabase(ctx context.Context) (dsn string, err error) {
	s.mu.Lock()
	s.names++
	name := fmt.Sprint("test", s.names)
	s.mu.Unlock()
	conn, err := pgx.Connect(ctx, s.DSN("postgres"))
	if err != nil {
		return "", err
	}
	_, err = conn.Exec(ctx, "CREATE DATABASE "+name)
	return s.DSN(name), errors.Join(err, conn.Close(ctx))
}
