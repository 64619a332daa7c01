package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
)

// quiet is a writer that keeps nothing, with what net/http's has that costs something to look for.
type quiet struct{ header http.Header }

func (w quiet) Header() http.Header       { return w.header }
func (quiet) Write(b []byte) (int, error) { return len(b), nil }
func (quiet) WriteHeader(int)             {}
func (quiet) Flush()                      {}

// overhead are handlers with and without a limit, to be compared: the difference is what the middleware costs.
func overhead(t testing.TB) (with map[string]http.Handler, without http.Handler, r *http.Request) {
	const (
		numbers = "algorithm: token-bucket, capacity: 1000000000, refillPerSecond: 1000, onStoreFailure: closed"
		one     = "policies:\n  - {id: user, match: {route: POST /payments}, key: [user], " + numbers + "}\n"
		two     = one + "  - {id: ip, key: [ip], " + numbers + "}\n"
	)
	plain := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header()["Content-Type"] = contentType
		hello(w, nil)
	})
	mux := http.NewServeMux()
	mux.Handle("POST /payments", plain)
	limited := func(policies string, attributes ...httplimit.Attribute) http.Handler {
		return newMiddleware(t, policies, httplimit.Options{Attributes: append(attributes, httplimit.Func("user", user))}).Handler(plain)
	}
	r = as("ann", httptest.NewRequest(http.MethodPost, "/payments", nil))
	r.RemoteAddr, r.Pattern = proxy, "POST /payments"
	r.Header.Set(xff, "6.6.6.6, 203.0.113.7")
	return map[string]http.Handler{
		"a policy by user":                limited(one, httplimit.Route(nil)),
		"a policy by user around the mux": limited(one, httplimit.Route(mux)),
		"two, by user and client":         limited(two, httplimit.Route(nil), httplimit.ClientIP(guardedHop)),
	}, plain, r
}

var contentType = []string{"text/plain"}

// TestOverhead: at most two allocations, those of the fields and of the writer that joins them with the handler's.
func TestOverhead(t *testing.T) {
	if raced {
		t.Skip("the race detector allocates")
	}
	with, without, r := overhead(t)
	w := quiet{http.Header{}}
	count := func(h http.Handler) float64 {
		return testing.AllocsPerRun(1000, func() { clear(w.header); h.ServeHTTP(w, r) })
	}
	base := count(without)
	for name, handler := range with {
		require.LessOrEqual(t, count(handler), base+2, name)
		require.NotEmpty(t, w.header.Get("RateLimit"), name)
	}
}

func BenchmarkOverhead(b *testing.B) {
	with, without, r := overhead(b)
	with["no limit"] = without
	for name, h := range with {
		b.Run(name, func(b *testing.B) {
			w := quiet{http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				h.ServeHTTP(w, r)
			}
		})
	}
}
