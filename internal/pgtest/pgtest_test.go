package pgtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/pgtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestServer: data outlives a kill, databases are apart, and a paused server does not answer.
func TestServer(t *testing.T) {
	server := pgtest.Start(t)
	one, other := server.Database(t), server.Database(t)
	require.NoError(t, exec(t.Context(), one, "CREATE TABLE kept (n int)"))
	require.Error(t, exec(t.Context(), other, "SELECT * FROM kept"))

	server.Kill()
	require.Error(t, exec(t.Context(), one, "SELECT 1"))
	require.NoError(t, server.Start(t.Context()))
	require.NoError(t, exec(t.Context(), one, "SELECT * FROM kept"))

	require.NoError(t, server.Pause())
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, exec(short, one, "SELECT 1"), context.DeadlineExceeded)
	require.NoError(t, server.Resume())
	require.NoError(t, exec(t.Context(), one, "SELECT 1"))
	require.Error(t, exec(t.Context(), server.DSNFor(pgtest.User, "wrong", "postgres"), "SELECT 1"))
}

func exec(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }()
	_, err = conn.Exec(ctx, sql)
	return err
}
