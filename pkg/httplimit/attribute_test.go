package httplimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
)

// counting is a policy of one request for each value of an attribute.
func counting(attribute string) string {
	return "policies:\n  - {id: one, key: [" + attribute + "], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed, onMissingKey: skip}\n"
}

// arrival is a request, and the name of the bucket that counts it; "": none.
type arrival struct {
	request *http.Request
	bucket  string
}

func at(method, target, bucket string) arrival {
	return arrival{httptest.NewRequest(method, target, nil), bucket}
}

// requireBuckets has the handler answer requests, which are counted in buckets of one: the first of each bucket is admitted.
func requireBuckets(t *testing.T, h http.Handler, arrivals []arrival) {
	t.Helper()
	seen := map[string]bool{}
	for i, a := range arrivals {
		want := http.StatusOK
		if a.bucket != "" && seen[a.bucket] {
			want = http.StatusTooManyRequests
		}
		seen[a.bucket] = true
		rec := serve(h, a.request)
		require.Equal(t, want, rec.Code, "request %d: %s %s", i, a.request.Method, a.request.URL)
		require.Equal(t, a.bucket != "", rec.Header().Get("RateLimit-Policy") != "", "request %d: %s %s", i, a.request.Method, a.request.URL)
	}
}

func TestHeader(t *testing.T) {
	handler := newServer(t, counting("tenant"), httplimit.Options{Attributes: []httplimit.Attribute{httplimit.Header("tenant", "x-tenant")}})
	with := func(bucket string, values ...string) arrival {
		r := get("/")
		r.Header["X-Tenant"] = values
		return arrival{r, bucket}
	}
	requireBuckets(t, handler, []arrival{
		with("a", "a"), with("b", "b"), with("a", "a", "c"), with(""), with(""), with("empty", ""), with("empty", ""),
	})
}

// onRoutes are requests to newMux.
func onRoutes() []arrival {
	return []arrival{
		at("POST", "/users/1/payments", "payments"), at("POST", "/users/2/payments", "payments"), at("POST", "/users/3/payments?x=1", "payments"),
		at("GET", "/files/a", "files"), at("HEAD", "/files/b/c", "files"),
		at("POST", "/login", "POST"), at("PUT", "/login", "PUT"), at("INVENTED", "/login", "OTHER"), at("NEW", "/login", "OTHER"), at("POST", "/login", "POST"),
		at("POST", "http://host.test/host", "host"), at("POST", "http://host.test/host", "host"),
	}
}

func newMux(wrap func(http.Handler) http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for _, pattern := range []string{"POST /users/{id}/payments", "GET /files/{path...}", "/login", "host.test/host"} {
		mux.Handle(pattern, wrap(http.HandlerFunc(hello)))
	}
	return mux
}

func TestRouteAroundHandlers(t *testing.T) {
	limit := newMiddleware(t, counting("route"), httplimit.Options{Attributes: []httplimit.Attribute{httplimit.Route(nil)}})
	requireBuckets(t, newMux(limit.Handler), onRoutes())
}

func TestRouteAroundTheMux(t *testing.T) {
	mux := newMux(func(h http.Handler) http.Handler { return h })
	limit := newMiddleware(t, counting("route"), httplimit.Options{Attributes: []httplimit.Attribute{httplimit.Route(mux)}})
	requireBuckets(t, limit.Handler(mux), onRoutes())
	for range 2 {
		rec := serve(limit.Handler(mux), get("/nowhere"))
		require.Equal(t, http.StatusNotFound, rec.Code, "has no route, so no policy by route applies")
	}
}

// TestRouteInPolicies: a policy names a route as it is registered.
func TestRouteInPolicies(t *testing.T) {
	const policies = `
policies:
  - {id: pay, match: {route: ["POST /users/{id}/payments", "POST /host"]}, key: [], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed}
`
	limit := newMiddleware(t, policies, httplimit.Options{Attributes: []httplimit.Attribute{httplimit.Route(nil)}})
	requireBuckets(t, newMux(limit.Handler), []arrival{
		at("POST", "/users/1/payments", "pay"), at("POST", "/users/2/payments", "pay"), at("POST", "/login", ""),
		at("POST", "http://host.test/host", "pay"),
	})
}

// TestMethodAndPath make a route where there are no patterns.
func TestMethodAndPath(t *testing.T) {
	limit := newServer(t, counting("route"), httplimit.Options{Attributes: []httplimit.Attribute{httplimit.Method(), httplimit.Path()}})
	requireBuckets(t, limit, []arrival{
		at("GET", "/a", "GET /a"), at("GET", "/a?x", "GET /a"), at("GET", "//a", "GET /a"), at("GET", "/./a", "GET /a"), at("GET", "/%61", "GET /a"),
		at("POST", "/a", "POST /a"), at("MADE", "/a", "OTHER /a"), at("UP", "/a", "OTHER /a"), at("GET", "/b", "GET /b"),
	})
}
