// Package upstream is what stands behind Envoy in the demo and the tests: a small HTTP server that answers everything and remembers what
// reached it.
package upstream

import (
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
)

// Server is the upstream's handler. The zero Server is ready for use.
//
//	/echo         answers with the headers that reached it, one a line
//	/own-limits   answers with limits and a Retry-After of its own
//	/fail         answers 503
//	anything else says what was asked for
type Server struct {
	mu       sync.Mutex
	requests int
	logins   int
}

// Seen returns how many requests reached the upstream, and how many of them it would have taken for a login.
func (s *Server) Seen() (requests, logins int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.requests, s.logins
}

// Reset forgets what was seen.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requests, s.logins = 0, 0
}

// ServeHTTP implements [http.Handler].
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	s.mu.Lock()
	s.requests++
	if isLogin(r) {
		s.logins++
	}
	s.mu.Unlock()

	switch r.URL.Path {
	case "/echo":
		echo(w, r.Header)
	case "/own-limits":
		w.Header().Set("RateLimit", `"upstream";r=1;t=1`)
		w.Header().Set("RateLimit-Policy", `"upstream";q=2;w=3`)
		w.Header().Set("X-RateLimit-Limit", "2")
		w.Header().Set("Retry-After", "77")
	case "/fail":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		_, _ = fmt.Fprintf(w, "upstream: %s %s\n", r.Method, r.URL.Path)
	}
}

// isLogin judges as the most lenient upstream might: it takes any method that may carry a body, decodes the path, folds case, cleans dots and slashes,
// drops path parameters, suffixes and white space.
func isLogin(r *http.Request) bool {
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions: // the last is a browser asking first
		return false
	}
	segments := strings.Split(strings.ReplaceAll(r.URL.Path, `\`, "/"), "/")
	for i, segment := range segments {
		segment, _, _ = strings.Cut(segment, ";")
		segments[i] = strings.ToLower(strings.TrimSpace(segment))
	}
	clean := path.Clean("/" + strings.Join(segments, "/"))
	return strings.TrimSuffix(clean, path.Ext(clean)) == "/auth/login"
}

func echo(w io.Writer, header http.Header) {
	var lines []string
	for name, values := range header {
		for _, value := range values {
			lines = append(lines, strings.ToLower(name)+": "+value+"\n")
		}
	}
	slices.Sort(lines)
	_, _ = io.WriteString(w, strings.Join(lines, ""))
}
