package redistest_test

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// line is a connection on which PINGs are sent.
type line struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, p *redistest.Proxy) line {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return line{c, bufio.NewReader(c)}
}

// ping sends n PINGs at once and returns what comes back until there are as many lines, the connection ends or nothing more comes in time.
func (l line) ping(t *testing.T, n int, patience time.Duration) string {
	t.Helper()
	_, err := io.WriteString(l, strings.Repeat("PING\r\n", n))
	require.NoError(t, err)
	require.NoError(t, l.SetReadDeadline(time.Now().Add(patience)))
	var got strings.Builder
	for range n {
		text, err := l.in.ReadString('\n')
		got.WriteString(text)
		if err != nil {
			break
		}
	}
	return got.String()
}

func TestProxy(t *testing.T) {
	t.Parallel()
	server := redistest.StartStandalone(t)
	p := redistest.StartProxy(t, server)
	const patience, short = 10 * time.Second, 50 * time.Millisecond
	l := dial(t, p)
	require.Equal(t, "+PONG\r\n+PONG\r\n", l.ping(t, 2, patience))

	p.Say("-OOM full")
	require.Equal(t, "-OOM full\r\n-OOM full\r\n", l.ping(t, 2, patience), "one for each")
	p.Lose()
	require.Empty(t, l.ping(t, 1, short))
	p.Delay(2 * short)
	began := time.Now()
	require.Equal(t, "+PONG\r\n", l.ping(t, 1, patience))
	require.GreaterOrEqual(t, time.Since(began), 2*short)
	p.Heal()
	require.Equal(t, "+PONG\r\n", l.ping(t, 1, patience))

	p.SpoilRequests(func([]byte) ([]byte, bool) { return []byte("ECHO x\r\n"), true })
	require.Equal(t, "$1\r\n", l.ping(t, 1, patience))
	p.Heal()

	p.Refuse()
	require.Empty(t, dial(t, p).ping(t, 1, patience), "a new one is closed")
	p.Heal()
	l = dial(t, p)
	p.Halve()
	require.Equal(t, "+PO", l.ping(t, 1, patience))
	require.Empty(t, l.ping(t, 1, patience), "it is cut")
	p.Heal()
	l = dial(t, p)
	require.Equal(t, "+PONG\r\n", l.ping(t, 1, patience))
	p.Cut()
	require.Empty(t, l.ping(t, 1, patience))

	l = dial(t, p)
	p.Close()
	require.Empty(t, l.ping(t, 1, patience))
	p.Close() // a second time is no harm
}
