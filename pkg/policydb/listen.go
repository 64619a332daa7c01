package policydb

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Listener is told by Listen. All its funcs are called from one goroutine.
type Listener struct {
	// Changed is called when another version may have become active: at each notice, and whenever listening begins, since a notice may have
	// been missed before.
	Changed func()
	// Lost gets why nobody listens, each time that is tried in vain.
	Lost func(error)
}

// The pauses between attempts to listen.
const (
	firstPause = 100 * time.Millisecond
	mostPause  = 10 * time.Second
)

// Listen tells of new versions until ctx ends, on a connection of its own. It connects again, after jittered pauses that grow up to 10 s, as often
// as it takes.
func (d *DB) Listen(ctx context.Context, l Listener) {
	pause := firstPause
	for {
		listened, err := d.listen(ctx, l.Changed)
		if ctx.Err() != nil {
			return
		}
		if listened {
			pause = firstPause
		}
		l.Lost(err)
		wait := time.NewTimer(jitter(pause))
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-wait.C:
		}
		pause = min(2*pause, mostPause)
	}
}

// jitter is between half and all of pause, so that many instances do not come back at once.
func jitter(pause time.Duration) time.Duration { return pause/2 + rand.N(pause/2+1) }

// listen listens on one connection until it breaks.
func (d *DB) listen(ctx context.Context, changed func()) (listened bool, err error) {
	conn, err := d.subscribe(ctx)
	if err != nil {
		return false, err
	}
	defer closeConn(conn)
	changed()
	for {
		if err := d.await(ctx, conn); err != nil {
			return true, err
		}
		changed()
	}
}

func (d *DB) subscribe(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	conn, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, "LISTEN envoy_rls_policies"); err != nil {
		closeConn(conn)
		return nil, err
	}
	return conn, nil
}

// await waits for a notice. A silent connection is tried now and then: its other end may have gone without a word.
func (d *DB) await(ctx context.Context, conn *pgx.Conn) error {
	for {
		silence, cancel := context.WithTimeout(ctx, d.opts.Silence)
		_, err := conn.WaitForNotification(silence)
		cancel()
		if err == nil || ctx.Err() != nil || !pgconn.Timeout(err) {
			return err
		}
		answer, cancel := context.WithTimeout(ctx, d.opts.Timeout)
		err = conn.Ping(answer)
		cancel()
		if err != nil {
			return err
		}
	}
}
