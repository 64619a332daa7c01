package policydb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// State says what has become of a version.
type State string

// The states.
const (
	Active     State = "active"     // in force, on every instance that has heard of it
	Superseded State = "superseded" // was active before
)

// Version is one state of the policies.
type Version struct {
	Number   int64     `json:"number"`
	State    State     `json:"state"`
	SHA256   string    `json:"sha256"` // of the files: 64 hexadecimal digits
	Author   string    `json:"author"`
	Comment  string    `json:"comment"`
	Created  time.Time `json:"created"`
	BasedOn  int64     `json:"basedOn,omitempty"`  // what was active before; 0: nothing
	Restores int64     `json:"restores,omitempty"` // whose files it has, if it is a rollback
	// Files are the policy files in the order in which they are loaded. Only Get gives them.
	Files []policy.Text `json:"-"`
}

var (
	// ErrNoVersion is in the chain of an error that says that there is no such version, or none at all.
	ErrNoVersion = errors.New("no such version")
	// ErrDamaged is in the chain of an error about a version whose files are not those that were published.
	ErrDamaged = errors.New("damaged")
)

// columns are those of a Version, as scan reads them.
const columns = "number, state, sha256, author, comment, created_at, coalesce(based_on, 0), coalesce(restores, 0)"

func scan(row pgx.Row, more ...any) (v Version, err error) {
	var sum []byte
	into := append([]any{&v.Number, &v.State, &sum, &v.Author, &v.Comment, &v.Created, &v.BasedOn, &v.Restores}, more...)
	err = row.Scan(into...)
	v.SHA256 = hex.EncodeToString(sum)
	if errors.Is(err, pgx.ErrNoRows) || noSchema(err) {
		err = ErrNoVersion
	}
	return v, err
}

// Active gives the version that is active, without its files. ErrNoVersion: nothing has been published.
func (d *DB) Active(ctx context.Context) (v Version, err error) {
	err = d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if v, err = active(ctx, conn); errors.Is(err, ErrNoVersion) {
			return none(ctx, conn)
		}
		return err
	})
	return v, err
}

// querier is a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// active prefers the newest, should somebody have dropped the index that keeps others from being active too.
func active(ctx context.Context, q querier) (Version, error) {
	return scan(q.QueryRow(ctx, "SELECT "+columns+" FROM envoy_rls.versions WHERE state = $1 ORDER BY number DESC LIMIT 1", Active))
}

// none says why no version is active.
func none(ctx context.Context, q querier) error {
	var number int64
	err := q.QueryRow(ctx, "SELECT number FROM envoy_rls.versions ORDER BY number DESC LIMIT 1").Scan(&number)
	switch {
	case errors.Is(err, pgx.ErrNoRows) || noSchema(err):
		return fmt.Errorf("%w: no policies have been published", ErrNoVersion)
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: none is active, of those up to version %d: somebody has changed that by hand; publish one or go back to one", ErrNoVersion, number)
}

// Get gives a version with its files. ErrNoVersion: there is none of this number; ErrDamaged: its SHA-256 is not that of its files.
func (d *DB) Get(ctx context.Context, number int64) (v Version, err error) {
	err = d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		v, err = get(ctx, conn, number)
		return err
	})
	return v, err
}

func get(ctx context.Context, q querier, number int64) (v Version, err error) {
	var files *string
	v, err = scan(q.QueryRow(ctx, "SELECT "+columns+`, CASE WHEN octet_length(files::text) <= $2 THEN files::text END
		FROM envoy_rls.versions WHERE number = $1`, number, maxEncoded), &files)
	switch {
	case err != nil:
	case files == nil:
		err = fmt.Errorf("%w: it has more than %d MiB", ErrDamaged, maxEncoded>>20)
	default:
		v.Files, err = decode([]byte(*files), v.SHA256)
	}
	if err != nil {
		return v, fmt.Errorf("version %d: %w", number, err)
	}
	return v, nil
}

// List gives the newest versions, without their files, the newest first.
func (d *DB) List(ctx context.Context, limit int) (list []Version, err error) {
	err = d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "SELECT "+columns+" FROM envoy_rls.versions ORDER BY number DESC LIMIT $1", limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (Version, error) { return scan(row) })
		if noSchema(err) {
			return nil
		}
		return err
	})
	return list, err
}

// maxEncoded bounds what is fetched, in bytes: more than Publish lets in, whatever characters have to be escaped.
const maxEncoded = 6*maxBytes + 1<<20

// file is how a file stands in the table.
type file struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

func encode(files []policy.Text) (string, error) {
	rows := make([]file, len(files))
	for i, f := range files {
		rows[i] = file{f.Path, string(f.Data)}
	}
	text, err := json.Marshal(rows)
	return string(text), err
}

func decode(text []byte, sum string) ([]policy.Text, error) {
	var rows []file
	if err := json.Unmarshal(text, &rows); err != nil {
		return nil, fmt.Errorf("%w: files: %w", ErrDamaged, err)
	}
	files := make([]policy.Text, len(rows))
	for i, f := range rows {
		files[i] = policy.Text{Path: f.Name, Data: []byte(f.Content)}
	}
	if got := Sum(files); got != sum {
		return nil, fmt.Errorf("%w: the files have SHA-256 %s, not %s as was published", ErrDamaged, got, sum)
	}
	return files, nil
}

// Sum is the SHA-256 of files with their names and order, as 64 hexadecimal digits.
func Sum(files []policy.Text) string {
	h := sha256.New()
	for _, f := range files {
		h.Write([]byte(f.Path))
		h.Write([]byte{0})
		h.Write(f.Data)
		h.Write([]byte{0})
	}
	return hex.EncodeToString(h.Sum(nil))
}
