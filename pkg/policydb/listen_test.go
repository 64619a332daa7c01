package policydb_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/pgtest"
	"github.com/envoy-rls/envoy-rls/pkg/policydb"
)

// patience bounds waits for what must happen; no test passes by waiting it out.
const patience = 30 * time.Second

// listening is a Listen that runs until the test ends.
type listening struct {
	t       *testing.T
	changed chan struct{}
	lost    chan error
}

func listen(t *testing.T, d *database) *listening {
	t.Helper()
	l := &listening{t, make(chan struct{}, 1000), make(chan error, 1000)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		d.Listen(ctx, policydb.Listener{Changed: func() { l.changed <- struct{}{} }, Lost: func(err error) { l.lost <- err }})
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return l
}

func await[T any](l *listening, what string, events <-chan T) T {
	l.t.Helper()
	select {
	case event := <-events:
		return event
	case <-time.After(patience):
		require.FailNow(l.t, "waited in vain for "+what)
		panic("not reached")
	}
}

func TestListen(t *testing.T) {
	d := newDatabase(t, func(o *policydb.Options) { o.Silence = 20 * time.Millisecond })
	l := listen(t, d)
	await(l, "listening", l.changed)
	d.push(1, "one")
	await(l, "version 1", l.changed)
	time.Sleep(100 * time.Millisecond) // silence, several times tried
	d.push(2, "two")
	await(l, "version 2", l.changed)
	require.NoError(t, d.exec(`WITH old AS (UPDATE envoy_rls.versions SET state = 'superseded')
		INSERT INTO envoy_rls.versions (number, state, files, sha256, author, comment) VALUES (3, 'superseded', '[]', sha256(''), 'x', 'x')`))
	require.NoError(t, d.exec("UPDATE envoy_rls.versions SET state = 'active' WHERE number = 3"))
	await(l, "a version that was made active by hand", l.changed)
	require.Empty(t, l.lost)
	require.Empty(t, l.changed, "one call for each")
}

// TestListenAgain: a connection that is cut, a server that is restarted and one that does not answer are found out, and listening begins again.
func TestListenAgain(t *testing.T) {
	server := pgtest.Start(t)
	d := open(t, server.Database(t), func(o *policydb.Options) { o.Silence = 20 * time.Millisecond })
	l := listen(t, d)
	await(l, "listening", l.changed)

	require.NoError(t, d.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'envoy-rls'"))
	require.ErrorContains(t, await(l, "the cut", l.lost), "terminating connection")
	await(l, "listening again", l.changed)

	server.Kill()
	require.Error(t, await(l, "the end of the server", l.lost))
	// Its port may accept a connection that the kill then cuts.
	for killed := time.Now(); ; {
		err := await(l, "an attempt", l.lost)
		if strings.Contains(err.Error(), "refused") {
			break
		}
		require.Less(t, time.Since(killed), patience, "no attempt is refused: %v", err)
	}
	require.NoError(t, server.Start(t.Context()))
	await(l, "listening to the new server", l.changed)
}

// TestNoAnswer: a server that accepts connections and says nothing costs no more than the timeout, and is no secret.
func TestNoAnswer(t *testing.T) {
	sink, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })
	d := open(t, "postgres://tester:s3cret@"+sink.Addr().String()+"/db", func(o *policydb.Options) { o.Timeout = 50 * time.Millisecond })
	_, err = d.Active(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotContains(t, err.Error(), "s3cret")
	l := listen(t, d)
	require.ErrorIs(t, await(l, "the timeout", l.lost), context.DeadlineExceeded)
	require.ErrorIs(t, await(l, "another attempt", l.lost), context.DeadlineExceeded)
	require.Empty(t, l.changed)
}
