package e2e_test

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between the service and a server of Redis, and can put something else in the place of what the server says.
type proxy struct {
	net.Listener
	server string
	// spoil gets each piece of what the server says, and returns what to say instead, and whether to go on. Nil: nothing is changed.
	spoil atomic.Pointer[func(piece []byte) (said []byte, goOn bool)]

	all   sync.WaitGroup
	mu    sync.Mutex
	conns []net.Conn
}

// startProxy starts a proxy that ends with the test.
func startProxy(t *testing.T, server string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{Listener: l, server: server}
	p.all.Go(p.serve)
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
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.all.Go(func() { p.pass(client, server, true) })
		p.all.Go(func() { p.pass(server, client, false) })
	}
}

func (p *proxy) pass(to, from net.Conn, answers bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		said, goOn := buffer[:n], true
		if f := p.spoil.Load(); f != nil && answers {
			said, goOn = (*f)(said)
		}
		if _, err := to.Write(said); err != nil || !goOn {
			return
		}
	}
}

// say puts a reply in the place of all that the server says. Empty: nothing is changed.
func (p *proxy) say(reply string) {
	if reply == "" {
		p.spoil.Store(nil)
		return
	}
	f := func([]byte) ([]byte, bool) { return []byte(reply + "\r\n"), true }
	p.spoil.Store(&f)
}

// halve passes on half of what the server says next, and cuts the connection.
func (p *proxy) halve() {
	f := func(piece []byte) ([]byte, bool) { return piece[:len(piece)/2], false }
	p.spoil.Store(&f)
}

func (p *proxy) stop() {
	_ = p.Close()
	p.mu.Lock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.all.Wait()
}
