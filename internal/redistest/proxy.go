package redistest

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Spoil gets a piece of what passes a [Proxy] in one direction, and returns what to pass on instead. After goOn false the connection is cut.
// It must not keep the piece. Both ends of many connections may call it at once.
type Spoil func(piece []byte) (passed []byte, goOn bool)

// Proxy stands between clients and a server, and spoils what passes, from now on or for new connections, as its methods say. It is safe for
// concurrent use.
type Proxy struct {
	listener net.Listener
	server   string
	replies  atomic.Pointer[Spoil]
	requests atomic.Pointer[Spoil]
	refuses  atomic.Bool
	closed   chan struct{}

	mu    sync.Mutex // guards conns
	conns map[net.Conn]bool
	all   sync.WaitGroup
}

// NewProxy makes a proxy that listens at listen (host:port; port 0: a free one) in front of the server at the other address. Whoever calls it
// calls [Proxy.Close].
func NewProxy(ctx context.Context, listen, server string) (*Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, fmt.Errorf("proxy of %s: %w", server, err)
	}
	p := &Proxy{listener: l, server: server, conns: map[net.Conn]bool{}, closed: make(chan struct{})}
	p.all.Go(p.serve)
	return p, nil
}

// StartProxy makes a proxy of a server, on a free port, that ends with the test.
func StartProxy(t testing.TB, server *Server) *Proxy {
	t.Helper()
	p, err := NewProxy(t.Context(), "127.0.0.1:0", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Addr returns host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns the redis:// URL of the proxy, without a password.
func (p *Proxy) URL() string { return "redis://" + p.Addr() }

// Close ends the proxy and every connection, and returns when all is gone.
func (p *Proxy) Close() {
	if p.listener.Close() == nil {
		close(p.closed)
	}
	p.Cut()
	p.all.Wait()
}

// Cut ends every connection. New ones are let through.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Heal has all that passes be passed on as it is, and every connection be let through.
func (p *Proxy) Heal() {
	p.replies.Store(nil)
	p.requests.Store(nil)
	p.refuses.Store(false)
}

// Refuse has no new connection be let through: each is closed at once.
func (p *Proxy) Refuse() { p.refuses.Store(true) }

// SpoilReplies spoils what the server sends.
func (p *Proxy) SpoilReplies(f Spoil) { p.replies.Store(&f) }

// SpoilRequests spoils what clients send.
func (p *Proxy) SpoilRequests(f Spoil) { p.requests.Store(&f) }

// Say puts a reply, without its line end, in the place of each reply of the server. What was asked for has been done.
func (p *Proxy) Say(reply string) {
	p.SpoilReplies(func(piece []byte) ([]byte, bool) {
		return []byte(strings.Repeat(reply+"\r\n", countReplies(piece))), true
	})
}

// Lose drops what the server sends.
func (p *Proxy) Lose() { p.SpoilReplies(func([]byte) ([]byte, bool) { return nil, true }) }

// Halve passes on half of what the server sends next on each connection, and cuts that.
func (p *Proxy) Halve() {
	p.SpoilReplies(func(piece []byte) ([]byte, bool) { return piece[:len(piece)/2], false })
}

// Delay holds back what the server sends, each piece for d.
func (p *Proxy) Delay(d time.Duration) {
	p.SpoilReplies(func(piece []byte) ([]byte, bool) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return piece, true
		case <-p.closed:
			return nil, false
		}
	})
}

// countReplies counts the replies in a piece. The rest of one that began in an earlier piece counts as one.
func countReplies(piece []byte) int {
	in := bufio.NewReader(bytes.NewReader(piece))
	for n := 0; ; n++ {
		if _, err := readReply(in); err != nil {
			return max(n, 1)
		}
	}
}

func (p *Proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.all.Go(func() { p.join(client) })
	}
}

// join connects a client to the server and passes on what the server sends, until one of them ends.
func (p *Proxy) join(client net.Conn) {
	if p.refuses.Load() {
		_ = client.Close()
		return
	}
	server, err := net.DialTimeout("tcp", p.server, replyTimeout)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.conns[client], p.conns[server] = true, true
	p.mu.Unlock()
	select {
	case <-p.closed: // Cut has not seen these two
		p.drop(client, server)
		return
	default:
	}
	p.all.Go(func() { p.pass(server, client, &p.requests) })
	p.pass(client, server, &p.replies)
}

func (p *Proxy) pass(to, from net.Conn, spoil *atomic.Pointer[Spoil]) {
	defer p.drop(to, from)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		passed, goOn := buffer[:n], true
		if f := spoil.Load(); f != nil {
			passed, goOn = (*f)(passed)
		}
		if _, err := to.Write(passed); err != nil || !goOn {
			return
		}
	}
}

func (p *Proxy) drop(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(p.conns, c)
	}
}
