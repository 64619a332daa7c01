package policydb

import (
	"context"
	"embed"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
)

//go:embed schema/*.sql
var schema embed.FS

// migrations are the steps to the newest schema, in order.
func migrations() ([]string, error) {
	paths, err := fs.Glob(schema, "schema/*.sql") // sorted by name
	if err != nil {
		return nil, err
	}
	var steps []string
	for _, path := range paths {
		text, err := schema.ReadFile(path)
		if err != nil {
			return nil, err
		}
		steps = append(steps, string(text))
	}
	return steps, nil
}

// Migrate brings the schema envoy_rls to the form that this package knows, in one transaction. It does nothing if it is there already, and
// is an error if a newer program has made it. Publish does it by itself; instances never do.
func (d *DB) Migrate(ctx context.Context) error {
	return d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return migrate(ctx, tx) })
	})
}

// migrationLock keeps two programs from making the schema at once. Any number will do that nobody else uses.
const migrationLock = 0x656e766f79726c73

func migrate(ctx context.Context, tx pgx.Tx) error {
	steps, err := migrations()
	if err != nil {
		return err
	}
	done, err := migrated(ctx, tx)
	if err != nil || done == len(steps) {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
		return err
	}
	if done, err = migrated(ctx, tx); err != nil {
		return err
	}
	if done > len(steps) {
		return fmt.Errorf("the database has schema %d, made by a newer envoy-rls; this one knows %d", done, len(steps))
	}
	if done == 0 {
		if _, err := tx.Exec(ctx, createMigrations, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	for n := done; n < len(steps); n++ {
		if _, err := tx.Exec(ctx, steps[n], pgx.QueryExecModeSimpleProtocol); err != nil {
			return fmt.Errorf("schema %d: %w", n+1, err)
		}
		if _, err := tx.Exec(ctx, "INSERT INTO envoy_rls.migrations (number) VALUES ($1)", n+1); err != nil {
			return err
		}
	}
	return nil
}

const createMigrations = `CREATE SCHEMA IF NOT EXISTS envoy_rls;
CREATE TABLE envoy_rls.migrations (number integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())`

// migrated is how many steps the schema has behind it.
func migrated(ctx context.Context, tx pgx.Tx) (done int, err error) {
	var there bool
	// Not to_regclass: that may remember that there was none before another transaction made it.
	err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_tables WHERE schemaname = 'envoy_rls' AND tablename = 'migrations')").Scan(&there)
	if err != nil || !there {
		return 0, err
	}
	err = tx.QueryRow(ctx, "SELECT coalesce(max(number), 0) FROM envoy_rls.migrations").Scan(&done)
	return done, err
}
