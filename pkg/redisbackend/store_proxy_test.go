package redisbackend_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a client and a server, and spoils what passes.
type proxy struct {
	net.Listener
	server string
	// spoil gets each piece of what the server sends, and what to send on instead. ok false cuts the connection afterwards.
	spoil atomic.Pointer[func(piece []byte) (passed []byte, ok bool)]
	// spoilRequest does the same for what the client sends.
	spoilRequest atomic.Pointer[func(piece []byte) (passed []byte, ok bool)]

	few atomic.Bool // no new connection is let through

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func startProxy(t testing.TB, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{Listener: l, server: server, conns: map[net.Conn]bool{}}
	p.wg.Go(p.serve)
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) url() string { return "redis://" + p.Addr().String() }

func (p *proxy) serve() {
	for {
		client, err := p.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil || p.few.Load() {
			_ = client.Close()
			if server != nil {
				_ = server.Close()
			}
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		p.wg.Go(func() { p.pass(client, server, &p.spoil) })
		p.wg.Go(func() { p.pass(server, client, &p.spoilRequest) })
	}
}

func (p *proxy) pass(to, from net.Conn, spoil *atomic.Pointer[func([]byte) ([]byte, bool)]) {
	defer p.drop(to, from)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		passed, ok := buffer[:n], true
		if f := spoil.Load(); f != nil {
			passed, ok = (*f)(passed)
		}
		if _, err := to.Write(passed); err != nil || !ok {
			return
		}
	}
}

func (p *proxy) drop(conns ...io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c.(net.Conn))
	}
}

// cut cuts all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

func (p *proxy) stop() {
	_ = p.Close()
	p.cut()
	p.wg.Wait()
}
