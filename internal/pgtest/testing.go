package pgtest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// NeedEnv is the environment variable that makes a missing PostgreSQL a failure instead of a skipped test.
const NeedEnv = "ENVOY_RLS_NEED_POSTGRES"

// startTimeout bounds a start. It takes about 2 s, more on a machine that is busy with other tests.
const startTimeout = time.Minute

// Shared is a server that the tests of a package have in common: making one takes seconds. The first test that asks for it starts it.
type Shared struct {
	once   sync.Once
	server *Server
	dir    string
	err    error
}

// Server gives the server to a test. Whoever stops it starts it again before the test ends.
func (s *Shared) Server(t testing.TB) *Server {
	t.Helper()
	need(t)
	s.once.Do(func() { s.server, s.dir, s.err = start(context.Background()) })
	if s.err != nil {
		t.Fatalf("start postgres: %v", s.err)
	}
	return s.server
}

// Database gives an empty database to a test, by its connection string.
func (s *Shared) Database(t testing.TB) (dsn string) {
	t.Helper()
	return s.Server(t).Database(t)
}

// Close stops the server, if there is one, when all tests have run.
func (s *Shared) Close() error {
	if s.server != nil {
		s.server.Kill()
	}
	if s.dir == "" {
		return nil
	}
	return os.RemoveAll(s.dir)
}

// Start starts a server that ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	need(t)
	server, dir, err := start(t.Context())
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err != nil {
		t.Fatalf("start postgres: %v", err)
	}
	t.Cleanup(server.Kill)
	return server
}

// start starts a server in a directory of its own: the server's user may not come through that of a test.
func start(ctx context.Context) (server *Server, dir string, err error) {
	if dir, err = os.MkdirTemp("", "pgtest"); err != nil {
		return nil, "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, dir, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	server, err = New(ctx, filepath.Join(dir, "pg"))
	return server, dir, err
}

// Database makes an empty database for a test and gives its connection string.
func (s *Server) Database(t testing.TB) (dsn string) {
	t.Helper()
	dsn, err := s.NewDatabase(t.Context())
	if err != nil {
		t.Fatalf("make a database: %v", err)
	}
	return dsn
}

// need skips the test if there is no PostgreSQL.
func need(t testing.TB) {
	t.Helper()
	if _, err := find(); err != nil {
		if os.Getenv(NeedEnv) != "" {
			t.Fatalf("%s is set: %v", NeedEnv, err)
		}
		t.Skip(err)
	}
}
