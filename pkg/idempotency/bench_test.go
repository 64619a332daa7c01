package idempotency_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// BenchmarkRequest is a request with a new key each time, with one key, and without; all are charged.
func BenchmarkRequest(b *testing.B) {
	for _, name := range []string{"new key", "same key", "no key"} {
		b.Run(name, func(b *testing.B) {
			m, err := idempotency.New(idempotency.Options{
				Store:   idempotency.NewMemory(idempotency.MemoryOptions{}),
				Account: account,
				Limit:   func(next http.Handler) http.Handler { return next },
			})
			if err != nil {
				b.Fatal(err)
			}
			handler := m.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("done")) }))
			r := post("")
			if name == "no key" {
				r.Header.Del(idempotency.FieldKey)
			}
			body, n := strings.NewReader(""), 0
			b.ReportAllocs()
			for b.Loop() {
				body.Reset("{}")
				r.Body = io.NopCloser(body)
				if name == "new key" {
					n++
					r.Header[idempotency.FieldKey] = []string{`"` + strconv.Itoa(n) + `"`}
				}
				handler.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
