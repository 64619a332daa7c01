package idempotency_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// TestStreams: the client gets each piece when it is flushed, and a retry all of them.
func TestStreams(t *testing.T) {
	next := make(chan struct{})
	s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Write([]byte("one,"))
		w.(http.Flusher).Flush()
		<-next
		_, err := io.Copy(w, strings.NewReader("two,"))
		require.NoError(t, err)
		require.NoError(t, http.NewResponseController(w).Flush())
		<-next
	})
	server := httptest.NewServer(s)
	defer server.Close()
	send := func() *http.Response {
		r := post("{}")
		r.RequestURI, r.URL.Host, r.URL.Scheme = "", server.Listener.Addr().String(), "http"
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		return resp
	}
	resp := send()
	pieces := bufio.NewReader(resp.Body)
	for _, want := range []string{"one,", "two,"} {
		piece, err := pieces.ReadString(',')
		require.NoError(t, err)
		require.Equal(t, want, piece)
		next <- struct{}{}
	}
	_, err := pieces.ReadByte()
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, resp.Body.Close())

	resp = send()
	all, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, "one,two,", string(all))
	require.Equal(t, "true", resp.Header.Get(idempotency.FieldReplayed))
}

// brokenWriter writes nothing, and counts the attempts.
type brokenWriter struct {
	*httptest.ResponseRecorder
	err      error
	attempts int
}

func (w *brokenWriter) Write([]byte) (int, error) {
	w.attempts++
	return 0, w.err
}

// goneWriter is of a client that has hung up.
func goneWriter() *brokenWriter {
	return &brokenWriter{ResponseRecorder: httptest.NewRecorder(), err: errors.New("broken pipe")}
}

// TestClientHangsUp: it comes back for the whole answer. If the handler failed, hanging up may have been why, and it is tried again.
func TestClientHangsUp(t *testing.T) {
	for status, stored := range map[int]bool{201: true, 400: false, 500: false} {
		runs := 0
		ctx, hangUp := context.WithCancel(t.Context())
		s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
			runs++
			hangUp()
			w.WriteHeader(status)
			for range 3 {
				n, err := io.WriteString(w, "piece,")
				require.NoError(t, err)
				require.Equal(t, 6, n)
			}
		})
		w := goneWriter()
		s.ServeHTTP(w, post("{}").WithContext(ctx))
		require.Equal(t, 1, w.attempts)
		rec := s.serve(post("{}"))
		require.Equal(t, "piece,piece,piece,", rec.Body.String())
		require.Equal(t, stored, runs == 1)
		require.Equal(t, stored, rec.Header().Get(idempotency.FieldReplayed) == "true")
	}
}

// TestGoneAndTooLarge: where no copy is kept, the handler is told that nobody listens.
func TestGoneAndTooLarge(t *testing.T) {
	s := newService(t, idempotency.Options{MaxResponse: 10}, func(w http.ResponseWriter, _ *http.Request) {
		_, err := io.WriteString(w, strings.Repeat("x", 11))
		require.Error(t, err)
	})
	s.ServeHTTP(goneWriter(), post("{}"))
	requireProblem(t, s.serve(post("{}")), http.StatusConflict, "IDEMPOTENCY_RESPONSE_NOT_KEPT")
}

// TestTooMuch: a handler that writes more than it declared is told so, and its answer is no whole one.
func TestTooMuch(t *testing.T) {
	s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "4")
		_, err := io.WriteString(w, "piece")
		require.ErrorIs(t, err, http.ErrContentLength)
	})
	s.ServeHTTP(&brokenWriter{ResponseRecorder: httptest.NewRecorder(), err: http.ErrContentLength}, post("{}"))
	requireProblem(t, s.serve(post("{}")), http.StatusConflict, "IDEMPOTENCY_RESPONSE_NOT_KEPT")
}

// TestHijack: what happens on a connection of the handler's own is not stored.
func TestHijack(t *testing.T) {
	runs := 0
	s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		runs++
		conn, _, err := w.(http.Hijacker).Hijack()
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
		require.NoError(t, err)
	})
	over := make(chan struct{}, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(w, r)
		over <- struct{}{}
	}))
	defer server.Close()
	for range 2 {
		r := post("{}")
		r.RequestURI, r.URL.Host, r.URL.Scheme = "", server.Listener.Addr().String(), "http"
		resp, err := server.Client().Do(r)
		require.NoError(t, err)
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, "hi", string(body))
		<-over // the client has its answer before the handler returns
	}
	require.Equal(t, 2, runs)
	require.Equal(t, []idempotency.Outcome{idempotency.RanOnly, idempotency.RanOnly}, s.took())

	broken := newService(t, idempotency.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		_, _, err := w.(http.Hijacker).Hijack() // no connection to take
		require.ErrorIs(t, err, http.ErrNotSupported)
		w.WriteHeader(http.StatusAccepted)
	})
	broken.serve(post("{}"))
	require.Equal(t, []idempotency.Outcome{idempotency.Ran}, broken.took())
}
