package policydb

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Draft is a version to be. Whoever makes one has loaded its files: the database does not.
type Draft struct {
	Files []policy.Text
	// Author and Comment say who published it, and why: one line each.
	Author, Comment string
	// Base is the version that the change was made to: it must be the one that is active. 0: nothing has been published before.
	Base int64
	// Restores is the version whose files these are, for a rollback. 0: none.
	Restores int64
}

// ConflictError says that another version is active than the one that a draft is based on.
type ConflictError struct {
	Base   int64
	Active Version
}

// Error says who was faster.
func (e *ConflictError) Error() string {
	if e.Active.Number == 0 {
		return fmt.Sprintf("the change is based on version %d, but none is active", e.Base)
	}
	return fmt.Sprintf("the change is based on version %d, but version %d is active, published by %s at %s: %s",
		e.Base, e.Active.Number, e.Active.Author, e.Active.Created.UTC().Format("2006-01-02 15:04:05 MST"), e.Active.Comment)
}

// ErrUnchanged says that the active version has the same files.
var ErrUnchanged = errors.New("the active version has the same files")

// Publish makes a version and makes it the active one, in one transaction, and every instance is told. The error is a *ConflictError if another
// version has become active since; with ErrUnchanged the Version is the active one and nothing was done.
func (d *DB) Publish(ctx context.Context, draft Draft) (v Version, err error) {
	if err := draft.check(); err != nil {
		return Version{}, err
	}
	err = d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if err := migrate(ctx, tx); err != nil {
				return err
			}
			v, err = publish(ctx, tx, draft)
			return err
		})
	})
	return v, err
}

// The bounds of a draft.
const (
	maxLine  = 1000     // characters of author and comment
	maxFiles = 1000     //
	maxBytes = 32 << 20 // of all files
)

func (d *Draft) check() error {
	var faults []error
	for name, line := range map[string]string{"author": d.Author, "comment": d.Comment} {
		switch {
		case strings.TrimSpace(line) == "":
			faults = append(faults, fmt.Errorf("%s is empty", name))
		case !utf8.ValidString(line) || strings.ContainsFunc(line, unicode.IsControl):
			faults = append(faults, fmt.Errorf("%s must be one line of text", name))
		case utf8.RuneCountInString(line) > maxLine:
			faults = append(faults, fmt.Errorf("%s is longer than %d characters", name, maxLine))
		}
	}
	if len(d.Files) == 0 || len(d.Files) > maxFiles {
		faults = append(faults, fmt.Errorf("a version has 1 to %d files, not %d", maxFiles, len(d.Files)))
	}
	size, names := 0, map[string]bool{}
	for _, f := range d.Files {
		size += len(f.Data)
		if names[f.Path] {
			faults = append(faults, fmt.Errorf("two files are named %s", f.Path))
		}
		names[f.Path] = true
		if strings.ContainsFunc(f.Path, unicode.IsControl) {
			faults = append(faults, fmt.Errorf("%q: a name of a file must be one line of text", f.Path))
		}
		if !utf8.Valid(f.Data) || bytes.IndexByte(f.Data, 0) >= 0 || !utf8.ValidString(f.Path) {
			faults = append(faults, fmt.Errorf("%q: not text in UTF-8", f.Path))
		}
	}
	if size > maxBytes {
		faults = append(faults, fmt.Errorf("the files have more than %d MiB", maxBytes>>20))
	}
	return errors.Join(faults...)
}

func publish(ctx context.Context, tx pgx.Tx, draft Draft) (Version, error) {
	// Others may read meanwhile, but not publish, not by hand either.
	if _, err := tx.Exec(ctx, "LOCK TABLE envoy_rls.versions IN SHARE ROW EXCLUSIVE MODE"); err != nil {
		return Version{}, err
	}
	before, err := active(ctx, tx)
	if err != nil && !errors.Is(err, ErrNoVersion) {
		return Version{}, err
	}
	sum := Sum(draft.Files)
	switch {
	case before.Number != draft.Base:
		return Version{}, &ConflictError{draft.Base, before}
	case before.SHA256 == sum && before.Number != 0:
		_, err := get(ctx, tx, before.Number)
		if err == nil {
			err = ErrUnchanged
		}
		if !errors.Is(err, ErrDamaged) { // what was damaged is mended by publishing it again
			return before, err
		}
	}
	files, err := encode(draft.Files)
	if err != nil {
		return Version{}, err
	}
	digest, err := hex.DecodeString(sum)
	if err != nil {
		return Version{}, err
	}
	if _, err := tx.Exec(ctx, "UPDATE envoy_rls.versions SET state = $1 WHERE state = $2", Superseded, Active); err != nil {
		return Version{}, err
	}
	return scan(tx.QueryRow(ctx, `INSERT INTO envoy_rls.versions (number, state, files, sha256, author, comment, based_on, restores)
		SELECT coalesce(max(number), 0) + 1, $1, $2::jsonb, $3, $4, $5, nullif($6::bigint, 0), nullif($7::bigint, 0) FROM envoy_rls.versions
		RETURNING `+columns, Active, files, digest, draft.Author, draft.Comment, draft.Base, draft.Restores))
}
