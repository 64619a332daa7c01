package redisbackend

import (
	"context"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// fresh is for how long a connection that Redis has answered on is not looked at again.
const fresh = 5 * time.Millisecond

// keepAlive finds connections that are gone without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 5 * time.Second, Count: 3}

// dialPlain connects without TLS.
func dialPlain(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTimeout, KeepAliveConfig: keepAlive}
	c, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if raw, ok := c.(syscall.Conn); ok {
		return &conn{Conn: c, raw: raw, made: time.Now()}, nil
	}
	return c, nil
}

// conn is a connection without TLS. Before each batch go-redis asks the system whether it was closed, 3 % of the CPU of a busy service: only one that was
// idle for a while may have been, without a batch that failed.
type conn struct {
	net.Conn
	raw  syscall.Conn
	made time.Time
	read atomic.Int64 // when last, since made
}

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && err == nil {
		c.read.Store(int64(time.Since(c.made)))
	}
	return n, err
}

// SyscallConn is asked for before each batch.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	if read := time.Duration(c.read.Load()); read > 0 && time.Since(c.made)-read < fresh {
		return unseen{}, nil
	}
	return c.raw.SyscallConn()
}

// unseen is a connection of which nothing is found out.
type unseen struct{}

// Control finds nothing out.
func (unseen) Control(func(uintptr)) error { return nil }

// Read finds nothing out.
func (unseen) Read(func(uintptr) bool) error { return nil }

// Write finds nothing out.
func (unseen) Write(func(uintptr) bool) error { return nil }
