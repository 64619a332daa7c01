package redisbackend

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestConnIsLookedAtWhenIdle: go-redis asks the system about a connection through SyscallConn. It is told nothing of one that has just been answered on,
// and all of one that was not used yet, or not for a while.
func TestConnIsLookedAtWhenIdle(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	go func() {
		if c, err := listener.Accept(); err == nil {
			_, _ = io.Copy(c, c) // until the client is gone
			_ = c.Close()
		}
	}()
	dialled, err := dialPlain(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer dialled.Close()
	c := dialled.(*conn)
	looked := func() bool {
		raw, err := c.SyscallConn()
		require.NoError(t, err)
		seen := false
		require.NoError(t, raw.Control(func(uintptr) { seen = true }))
		return seen
	}
	require.True(t, looked(), "not used yet")

	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	c.made = time.Now().Add(-time.Hour)
	c.read.Store(int64(2 * time.Hour)) // just now, however long the test takes
	require.False(t, looked(), "just answered on")
	c.read.Store(int64(time.Hour - fresh))
	require.True(t, looked(), "idle")

	before := c.read.Load()
	_, err = c.Write([]byte("x"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 1))
	require.NoError(t, err)
	require.Greater(t, c.read.Load(), before, "a reply counts")
}
