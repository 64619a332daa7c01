package routers_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/examples/routers"
	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// newMiddleware limits all payments together to two: their route is a pattern, whatever the user.
func newMiddleware(t *testing.T, route string) *httplimit.Middleware {
	t.Helper()
	f, err := policy.Parse("policies.yaml", []byte(`
policies:
  - {id: pay, match: {route: "`+route+`"}, key: [route], algorithm: token-bucket, capacity: 2, refillPerMinute: 1, onStoreFailure: closed}
`))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	limit, err := httplimit.New(httplimit.Options{
		Limiter:    ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{}), Policies: set}),
		Attributes: []httplimit.Attribute{httplimit.Route(nil)},
	})
	require.NoError(t, err)
	return limit
}

// requireLimited has two payments pass, of different users, and the third be denied before it is made.
func requireLimited(t *testing.T, h http.Handler, paid *int) {
	t.Helper()
	for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/users/"+string(rune('a'+i))+"/payments", nil))
		require.Equal(t, want, rec.Code)
		require.Equal(t, []string{`"pay";q=2;w=120`}, rec.Header().Values("RateLimit-Policy"))
		require.Len(t, rec.Header().Values("RateLimit"), 1)
		if want != http.StatusOK {
			require.Equal(t, "60", rec.Header().Get("Retry-After"))
			require.Equal(t, "application/problem+json", rec.Header().Get("Content-Type"))
			require.Contains(t, rec.Body.String(), "RATE_LIMITED")
		}
	}
	require.Equal(t, 2, *paid)
}

func TestChi(t *testing.T) {
	paid := 0
	requireLimited(t, routers.Chi(newMiddleware(t, "POST /users/{id}/payments"), func(http.ResponseWriter, *http.Request) { paid++ }), &paid)
}

func TestGin(t *testing.T) {
	gin.SetMode(gin.ReleaseMode)
	paid := 0
	requireLimited(t, routers.Gin(newMiddleware(t, "POST /users/:id/payments"), func(*gin.Context) { paid++ }), &paid)
}
