package idempotency

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"strconv"
)

// recorder passes a response on and keeps a copy of it. [http.ResponseController] finds what is not here by Unwrap.
type recorder struct {
	http.ResponseWriter
	limit    int         // bytes of body that are kept
	before   http.Header // as the handler was given it
	status   int         // 0: not begun
	header   http.Header // when the response began
	declared int         // bytes of body that it said it would have; -1: it did not say
	body     []byte
	over     bool // more than is kept
	gone     bool // the client no longer takes anything
	hijacked bool
}

func newRecorder(w http.ResponseWriter, limit int) *recorder {
	return &recorder{ResponseWriter: w, limit: limit, before: w.Header().Clone(), declared: -1}
}

// Unwrap is for [http.ResponseController].
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && (status >= 200 || status == http.StatusSwitchingProtocols) {
		r.begin(status)
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) begin(status int) {
	r.status = status
	h := r.Header()
	r.header = replayable(h, r.before)
	if n, err := strconv.Atoi(h.Get("Content-Length")); err == nil {
		r.declared = n
	}
}

// Write implements http.ResponseWriter. A client that has gone is no error while a copy is kept: it comes back for the whole of it. What may not be
// written is one.
func (r *recorder) Write(b []byte) (int, error) {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	if r.gone && !r.over {
		r.keep(b)
		return len(b), nil
	}
	n, err := r.ResponseWriter.Write(b)
	if errors.Is(err, http.ErrBodyNotAllowed) || errors.Is(err, http.ErrContentLength) {
		r.keep(b[:n])
		return n, err
	}
	r.keep(b)
	if err != nil && !r.over {
		r.gone = true
		return len(b), nil
	}
	return n, err
}

func (r *recorder) keep(b []byte) {
	if r.over || len(b) > r.limit-len(r.body) {
		r.over, r.body = true, nil
		return
	}
	r.body = append(r.body, b...)
}

// Flush implements http.Flusher.
func (r *recorder) Flush() { _ = r.FlushError() }

// FlushError is for [http.ResponseController].
func (r *recorder) FlushError() error {
	if r.status == 0 {
		r.WriteHeader(http.StatusOK)
	}
	return http.NewResponseController(r.ResponseWriter).Flush()
}

// Hijack implements http.Hijacker. What is written afterwards is not seen here.
func (r *recorder) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(r.ResponseWriter).Hijack()
	r.hijacked = r.hijacked || err == nil
	return conn, buffer, err
}

// answer is what is to be stored when the handler has returned. It is nil if the request may be carried out again: the service was too busy
// (429, 503), or failed after the client had hung up, which may have been why.
func (r *recorder) answer(hungUp bool) *answer {
	if r.hijacked || r.status == http.StatusSwitchingProtocols {
		return nil
	}
	if r.status == 0 {
		r.begin(http.StatusOK)
	}
	if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable || hungUp && r.status >= 400 {
		return nil
	}
	if r.over || r.declared >= 0 && r.declared != len(r.body) {
		return &answer{status: r.status}
	}
	return &answer{status: r.status, header: r.header, body: r.body, kept: true}
}
