package app

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"

	"google.golang.org/grpc/credentials"
)

// watched are credentials that tell of handshakes that failed.
type watched struct {
	credentials.TransportCredentials
	failed func(from string, why error)
}

func watch(config *tls.Config, failed func(from string, why error)) credentials.TransportCredentials {
	return watched{credentials.NewTLS(config), failed}
}

// ServerHandshake implements credentials.TransportCredentials. A probe that only connects is no handshake.
func (w watched) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	session, info, err := w.TransportCredentials.ServerHandshake(conn)
	if err != nil && !errors.Is(err, io.EOF) {
		w.failed(conn.RemoteAddr().String(), err)
	}
	return session, info, err
}

// Clone implements credentials.TransportCredentials.
func (w watched) Clone() credentials.TransportCredentials {
	return watched{w.TransportCredentials.Clone(), w.failed}
}

// httpLog is for what net/http says of a server.
func (a *App) httpLog(name string) *log.Logger {
	return log.New(&httpLines{failed: a.handshakeFailed(name), other: a.sparing()}, "", 0)
}

// httpLines puts lines of net/http in the service's own log.
type httpLines struct {
	failed func(from string, why error)
	other  *sparing
}

// Write implements io.Writer. A line is: http: TLS handshake error from 192.0.2.1:4711: why.
func (h *httpLines) Write(line []byte) (int, error) {
	text := bytes.TrimSpace(line)
	if about, ok := bytes.CutPrefix(text, []byte("http: TLS handshake error from ")); ok {
		from, why, _ := bytes.Cut(about, []byte(": "))
		if !bytes.Equal(why, []byte("EOF")) {
			h.failed(string(from), errors.New(shorten(why)))
		}
		return len(line), nil
	}
	h.other.log(slog.LevelWarn, "HTTP server", "message", shorten(text))
	return len(line), nil
}

// guard keeps a panic of h from showing what it was about: net/http would log the value, which may hold anything.
func (a *App) guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			switch value := recover(); value {
			case nil:
			case http.ErrAbortHandler:
				panic(value)
			default:
				a.log.Error("panic while answering", "path", shorten([]byte(r.URL.Path)), "stack", string(debug.Stack()))
				panic(http.ErrAbortHandler)
			}
		}()
		h.ServeHTTP(w, r)
	})
}
