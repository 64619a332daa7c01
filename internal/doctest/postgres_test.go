package doctest

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/pgtest"
)

// postgres is a database, and a sandbox whose commands find it.
type postgres struct {
	dsn string
	box *sandbox
}

// hasPostgres starts a database if there can be one.
func (c *checker) hasPostgres() bool {
	if pgtest.Find() != nil {
		return false
	}
	if c.postgres == nil {
		c.postgres = c.startPostgres()
	}
	return true
}

func startPostgres(t *testing.T, c *checker) *postgres {
	t.Helper()
	p := &postgres{dsn: pgtest.Start(t).Database(t)}
	file := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(file, []byte(p.dsn), 0o600))
	box := *c.box
	box.env = append(box.env[:len(box.env):len(box.env)], "ENVOY_RLS_POLICY_DSN_FILE="+file)
	p.box = &box
	return p
}

// checkSQL runs an ```sql block, all of whose statements must succeed.
func (p *postgres) checkSQL(ctx context.Context, b block) error {
	conn, err := pgx.Connect(ctx, p.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(ctx, b.body); err != nil {
		return b.errorf("%w", err)
	}
	return nil
}
