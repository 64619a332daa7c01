//go:build linux

package compose

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// forwarder takes connections on a listener and joins each with one that dial makes.
type forwarder struct {
	listener net.Listener
	dial     func(context.Context) (net.Conn, error)
	cancel   context.CancelFunc
	all      sync.WaitGroup
}

const dialTimeout = 5 * time.Second

// forward starts a forwarder. Whoever calls it calls close.
func forward(l net.Listener, dial func(context.Context) (net.Conn, error)) *forwarder {
	ctx, cancel := context.WithCancel(context.Background())
	f := &forwarder{listener: l, dial: dial, cancel: cancel}
	f.all.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			f.all.Go(func() { f.serve(ctx, conn) })
		}
	})
	return f
}

// close ends the listener and all connections.
func (f *forwarder) close() {
	_ = f.listener.Close()
	f.cancel()
	f.all.Wait()
}

func (f *forwarder) serve(ctx context.Context, near net.Conn) {
	defer func() { _ = near.Close() }()
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	far, err := f.dial(dialing)
	cancel()
	if err != nil {
		return // the client sees that the connection ends
	}
	defer func() { _ = far.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = errors.Join(near.Close(), far.Close()) })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { pipe(far, near) })
	both.Go(func() { pipe(near, far) })
	both.Wait()
}

// pipe copies until the source ends, and tells the other side that it has.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
