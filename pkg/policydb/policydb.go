// Package policydb keeps versions of the policies in PostgreSQL.
//
// A version is a number and the policy files that belong to it. It is never changed; a new one is published in one transaction that
// also checks what it was based on, so that two people cannot overwrite each other's changes. Every instance listens for new ones, and
// notes which version it runs.
//
//	db := policydb.New(policydb.Options{DSNFile: "/run/secrets/policy-dsn"})
//	version, err := db.Publish(ctx, policydb.Draft{Files: texts, Author: "ann", Comment: "higher limits for plan pro", Base: 7})
package policydb

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Options say where the database is.
type Options struct {
	// DSNFile holds PostgreSQL's connection string (postgres://user:password@host/database or key=value pairs). It is read for each
	// connection, so that a password can change while the program runs. What is in it never appears in an error.
	DSNFile string
	// Timeout bounds each operation, connecting included. 0: 5 s.
	Timeout time.Duration
	// Silence is after how long without a word on the listening connection it is tried. 0: 15 s.
	Silence time.Duration
}

// DB is a database of policy versions. It holds no connection open but that of Listen. It is safe for concurrent use.
type DB struct{ opts Options }

// New makes a DB. It reads and connects to nothing.
func New(opts Options) *DB {
	if opts.Timeout <= 0 {
		opts.Timeout = 5 * time.Second
	}
	if opts.Silence <= 0 {
		opts.Silence = 15 * time.Second
	}
	return &DB{opts}
}

// Check reads the file with the connection string, and says what is wrong with it.
func (d *DB) Check() error {
	_, err := d.config()
	return err
}

// ErrDSN is in the chain of errors about the file with the connection string.
var ErrDSN = errors.New("no connection string")

// maxDSN is how large the file may be, in bytes.
const maxDSN = 16 << 10

func (d *DB) config() (*pgx.ConnConfig, error) {
	info, err := os.Stat(d.opts.DSNFile)
	switch {
	case err != nil && (strings.Contains(d.opts.DSNFile, "://") || strings.Contains(d.opts.DSNFile, "password=")): // the error has it
		return nil, fmt.Errorf("%w: this is one itself: write it to a file, and name that", ErrDSN)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDSN, err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxDSN {
		return nil, fmt.Errorf("%w: %s: not a regular file of at most %d KiB", ErrDSN, d.opts.DSNFile, maxDSN>>10)
	}
	text, err := os.ReadFile(d.opts.DSNFile)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDSN, err)
	}
	dsn := strings.TrimSpace(string(text))
	config, err := pgx.ParseConfig(dsn)
	var other *fs.PathError
	if errors.As(err, &other) {
		return nil, fmt.Errorf("%w: %s names a file: %w", ErrDSN, d.opts.DSNFile, other)
	}
	if err != nil || dsn == "" { // what pgx says may quote the string, password and all
		return nil, fmt.Errorf("%w: %s: want postgres://user:password@host/database or key=value pairs, with special characters of a URL's password as %%XX",
			ErrDSN, d.opts.DSNFile)
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = d.opts.Timeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "envoy-rls"
	}
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // a connection lives for a few statements: preparing them is no gain
	return config, nil
}

func (d *DB) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := d.config()
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, config)
}

// with gives do a connection of its own for at most the timeout.
func (d *DB) with(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	inTime, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	err := d.connected(inTime, do)
	var fault *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case inTime.Err() != nil && ctx.Err() == nil:
		return fmt.Errorf("no answer within %v: %w", d.opts.Timeout, err)
	case errors.As(err, &fault) && fault.Code == "42501": // permission denied
		return fmt.Errorf("%w; docs/rollout.md says which rights are needed", err)
	}
	return err
}

func (d *DB) connected(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer closeConn(conn)
	return do(ctx, conn)
}

// closeConn says goodbye, but does not wait long for a server that does not answer.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx) // the connection is gone either way
}

// noSchema reports whether err says that nobody has published anything here yet.
func noSchema(err error) bool {
	const undefinedTable, invalidSchema = "42P01", "3F000"
	var fault *pgconn.PgError
	return errors.As(err, &fault) && (fault.Code == undefinedTable || fault.Code == invalidSchema)
}
