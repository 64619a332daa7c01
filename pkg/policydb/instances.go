package policydb

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Instance is what one instance of the service tells of itself.
type Instance struct {
	ID string
	// Version is the number of the version in force there, and Policies the version of its policy set, as metrics and status show it.
	Version  int64
	Policies string
	// Kept is whether it came from the instance's own file, since the database did not answer.
	Kept bool
	// Error is why the active version is not in force there; empty if it is, as far as the instance knows.
	Error string
	Build string
	// Since is how long the version has been in force there, Up how long the instance has been running, and Seen how long ago it said so.
	Since, Up, Seen time.Duration
}

// Heartbeat is how often an instance is to say that it runs. It counts as gone after three and a half times as long.
const Heartbeat = 10 * time.Second

// maxError bounds what an instance says is wrong, in bytes: a set may have many faults.
const maxError = 4000

// Beat notes what an instance says of itself, by the database's clock. Those that were not seen for an hour are forgotten.
func (d *DB) Beat(ctx context.Context, i Instance) error {
	reason := []rune(strings.ReplaceAll(i.Error, "\x00", "\uFFFD")) // which a database cannot hold
	return d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, beat, i.ID, i.Version, i.Policies, i.Kept, string(reason[:min(len(reason), maxError)]), i.Build,
			i.Since.Seconds(), i.Up.Seconds()); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "DELETE FROM envoy_rls.instances WHERE seen_at NOT BETWEEN now() - interval '1 hour' AND now() + interval '1 hour'")
		return err
	})
}

const beat = `INSERT INTO envoy_rls.instances (id, version, policies, kept, error, build, since, started_at, seen_at)
VALUES ($1, $2, $3, $4, $5, $6, now() - make_interval(secs => $7), now() - make_interval(secs => $8), now())
ON CONFLICT (id) DO UPDATE SET version = excluded.version, policies = excluded.policies, kept = excluded.kept, error = excluded.error,
	build = excluded.build, since = excluded.since, started_at = excluded.started_at, seen_at = excluded.seen_at`

// Leave forgets an instance that stops.
func (d *DB) Leave(ctx context.Context, id string) error {
	return d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, "DELETE FROM envoy_rls.instances WHERE id = $1", id)
		return err
	})
}

// Instances gives those that run, in the order of their ids: all that were seen of late. One that says it was seen in the future, as when the
// database's clock was set back, counts no longer than the others.
func (d *DB) Instances(ctx context.Context) (list []Instance, err error) {
	err = d.with(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, `SELECT id, version, policies, kept, error, build, extract(epoch FROM now() - since)::float8,
			extract(epoch FROM now() - started_at)::float8, extract(epoch FROM now() - seen_at)::float8 FROM envoy_rls.instances
			WHERE seen_at BETWEEN now() - make_interval(secs => $1) AND now() + make_interval(secs => $1)
				AND isfinite(since) AND isfinite(started_at) ORDER BY id`, 3.5*Heartbeat.Seconds())
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, scanInstance)
		if noSchema(err) {
			return nil
		}
		return err
	})
	return list, err
}

func scanInstance(row pgx.CollectableRow) (i Instance, err error) {
	var since, up, seen float64
	err = row.Scan(&i.ID, &i.Version, &i.Policies, &i.Kept, &i.Error, &i.Build, &since, &up, &seen)
	i.Since, i.Up, i.Seen = seconds(since), seconds(up), seconds(seen)
	return i, err
}

func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond)
}
