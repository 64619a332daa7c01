package httplimit

import (
	"io"
	"net/http"
)

// writer joins the fields with those that the handler has set when the response begins. It is embedded in one type for each kind of
// [http.ResponseWriter] there is, since handlers ask for further methods by type assertion. [http.ResponseController] finds what is
// not here by Unwrap.
type writer struct {
	http.ResponseWriter
	middleware *Middleware
	fields     fields
	lines      fieldLines
	begun      bool
}

// wrap gives a writer of the kind that w is.
func wrap(w http.ResponseWriter, m *Middleware) (http.ResponseWriter, *writer) {
	flusher, ok := w.(http.Flusher)
	if !ok {
		wrapped := &writer{ResponseWriter: w, middleware: m}
		return wrapped, wrapped
	}
	flushes := flushWriter{writer{ResponseWriter: w, middleware: m}, flusher}
	if hijacker, ok := w.(http.Hijacker); ok { // HTTP/1
		wrapped := &hijackWriter{flushes, hijacker}
		return wrapped, &wrapped.writer
	}
	if pusher, ok := w.(http.Pusher); ok { // HTTP/2
		wrapped := &pushWriter{flushes, pusher}
		return wrapped, &wrapped.writer
	}
	wrapped := &plainFlushWriter{flushes}
	return wrapped, &wrapped.writer
}

// settle makes the header right. Called before the response begins, and once more after the handler for responses that do not.
func (w *writer) settle() {
	if !w.begun {
		w.begun = true
		w.fields.put(w.Header(), &w.lines, &w.middleware.renderer)
	}
}

// Unwrap is for [http.ResponseController].
func (w *writer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *writer) WriteHeader(status int) {
	w.settle()
	if status < 200 && status != http.StatusSwitchingProtocols { // the response proper comes later
		w.begun = false
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *writer) Write(b []byte) (int, error) {
	w.settle()
	return w.ResponseWriter.Write(b)
}

// WriteString implements io.StringWriter.
func (w *writer) WriteString(s string) (int, error) {
	w.settle()
	return io.WriteString(w.ResponseWriter, s)
}

// ReadFrom implements io.ReaderFrom: the system copies a file by itself if the writer underneath lets it.
func (w *writer) ReadFrom(src io.Reader) (int64, error) {
	w.settle()
	return io.Copy(w.ResponseWriter, src)
}

// FlushError is for [http.ResponseController].
func (w *writer) FlushError() error {
	w.settle()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

type flushWriter struct {
	writer
	flusher http.Flusher
}

// Flush implements http.Flusher.
func (w *flushWriter) Flush() {
	w.settle()
	w.flusher.Flush()
}

type plainFlushWriter struct{ flushWriter }

type hijackWriter struct {
	flushWriter
	http.Hijacker
}

type pushWriter struct {
	flushWriter
	http.Pusher
}
