package policydb_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/pgtest"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

var postgres pgtest.Shared

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	code := m.Run()
	if err := postgres.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// database is an empty one, with a connection of the test's own.
type database struct {
	*policydb.DB
	t    *testing.T
	dsn  string
	file string
}

func newDatabase(t *testing.T, change ...func(*policydb.Options)) *database {
	t.Helper()
	dsn := postgres.Database(t)
	return open(t, dsn, change...)
}

// open makes a DB for a connection string.
func open(t *testing.T, dsn string, change ...func(*policydb.Options)) *database {
	t.Helper()
	d := &database{t: t, dsn: dsn, file: filepath.Join(t.TempDir(), "dsn")}
	require.NoError(t, os.WriteFile(d.file, []byte(dsn+"\n"), 0o600))
	opts := policydb.Options{DSNFile: d.file}
	for _, c := range change {
		c(&opts)
	}
	d.DB = policydb.New(opts)
	return d
}

// exec runs SQL as somebody with a terminal would.
func (d *database) exec(sql string, args ...any) error {
	conn, err := pgx.Connect(d.t.Context(), d.dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(d.t.Context(), sql, args...)
	return err
}

// push publishes one file based on the version before number.
func (d *database) push(number int64, content string) policydb.Version {
	d.t.Helper()
	v, err := d.Publish(d.t.Context(), draft(number-1, content))
	require.NoError(d.t, err)
	require.Equal(d.t, number, v.Number)
	return v
}

func draft(base int64, content string) policydb.Draft {
	return policydb.Draft{Files: texts(content), Author: "ann", Comment: "why", Base: base}
}

func texts(contents ...string) []policy.Text {
	var list []policy.Text
	for i, content := range contents {
		list = append(list, policy.Text{Path: fmt.Sprintf("%c.yaml", 'a'+i), Data: []byte(content)})
	}
	return list
}
