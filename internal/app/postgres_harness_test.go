package app_test

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/internal/pgtest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

// shelf is a database of policies, with somebody who publishes.
type shelf struct {
	*policydb.DB
	t      *testing.T
	server *pgtest.Server
	dsn    string
	file   string // with the connection string
}

func newShelf(t *testing.T, server *pgtest.Server) *shelf {
	t.Helper()
	s := &shelf{t: t, server: server, dsn: server.Database(t), file: filepath.Join(t.TempDir(), "dsn")}
	require.NoError(t, os.WriteFile(s.file, []byte(s.dsn), 0o600))
	s.DB = policydb.New(policydb.Options{DSNFile: s.file})
	return s
}

// push publishes policies and gives the number of their version.
func (s *shelf) push(policies string) int64 {
	s.t.Helper()
	active, err := s.Active(s.t.Context())
	if err != nil {
		require.ErrorIs(s.t, err, policydb.ErrNoVersion)
	}
	v, err := s.Publish(s.t.Context(), policydb.Draft{
		Files: []policy.Text{{Path: "edge.yaml", Data: []byte(policies)}}, Author: "ann", Comment: "test", Base: active.Number,
	})
	require.NoError(s.t, err)
	return v.Number
}

func (s *shelf) exec(sql string, args ...any) {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.dsn)
	require.NoError(s.t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(s.t.Context(), sql, args...)
	require.NoError(s.t, err)
}

// instance makes a service that takes its policies from the shelf, not started yet.
func (s *shelf) instance(change ...func(*app.Options)) *instance {
	s.t.Helper()
	opts, log := options(s.t, "not looked at")
	opts.PolicySource, opts.PolicyDSNFile, opts.PolicyKeptFile = "postgres", s.file, filepath.Join(s.t.TempDir(), "kept")
	for _, c := range change {
		c(&opts)
	}
	return newInstance(s.t, opts, log)
}

// start runs a service until the test ends.
func (s *shelf) start(change ...func(*app.Options)) *instance {
	s.t.Helper()
	i := s.instance(change...)
	require.NoError(s.t, i.Start(s.t.Context()))
	s.t.Cleanup(func() { require.NoError(s.t, i.Stop(context.Background())) })
	i.connect()
	return i
}

// version is the number of the version that an instance has in force, as it says itself.
func (i *instance) version() int64 { return i.status().Policies.Number }

// quota is what the RateLimit-Policy field of an answer says: the capacity that decided.
func (i *instance) quota() string {
	i.t.Helper()
	q := regexp.MustCompile(`;q=(\d+)`).FindStringSubmatch(header(i.call("ip", hostname), "RateLimit-Policy"))
	require.NotNil(i.t, q)
	return q[1]
}

// capacity is a policy file whose bucket has a capacity.
func capacity(n int) string { return bucket("p", n, "refillPerDay: 1") }

// awaitQuota waits until all instances decide by a capacity, and gives how long that took.
func awaitQuota(t *testing.T, want string, fleet []*instance) time.Duration {
	t.Helper()
	began := time.Now()
	for _, i := range fleet {
		require.Eventually(t, func() bool { return i.quota() == want }, 3*patience, 2*time.Millisecond) // a poll takes 33 s
	}
	return time.Since(began)
}
