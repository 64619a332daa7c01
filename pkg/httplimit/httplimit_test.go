package httplimit_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// userPolicies: two requests a user, and a ceiling that only shows when it denies.
const userPolicies = `
domain: payments
policies:
  - {id: per-user, name: user, key: [user], algorithm: token-bucket, capacity: 2, refillPerMinute: 1, onStoreFailure: closed}
  - {id: ceiling, key: [], algorithm: token-bucket, capacity: 1000, refillPerMinute: 1000, expose: onReject, onStoreFailure: open}
`

type userKey struct{}

// user is an attribute as an application would have it: from the context, where a session middleware has put it.
func user(r *http.Request) (string, bool) {
	u, ok := r.Context().Value(userKey{}).(string)
	return u, ok
}

func as(u string, r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), userKey{}, u))
}

func forUsers(o httplimit.Options) httplimit.Options {
	o.Domain = "payments"
	o.Attributes = append(o.Attributes, httplimit.Func("user", user))
	return o
}

// serve has the handler answer one request.
func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec
}

func get(target string) *http.Request { return httptest.NewRequest(http.MethodGet, target, nil) }

// field gives the only line of a field.
func field(t *testing.T, h http.Header, name string) string {
	t.Helper()
	require.Len(t, h.Values(name), 1, name)
	return h.Get(name)
}

func TestEveryResponseTells(t *testing.T) {
	handler := newServer(t, userPolicies, forUsers(httplimit.Options{}))
	for _, left := range []string{`"user";r=1;t=60`, `"user";r=0;t=60`} {
		rec := serve(handler, as("ann", get("/")))
		require.Equal(t, http.StatusOK, rec.Code)
		require.Equal(t, "hello", rec.Body.String())
		require.Equal(t, `"user";q=2;w=120`, field(t, rec.Header(), "RateLimit-Policy"))
		require.Equal(t, left, field(t, rec.Header(), "RateLimit"))
		require.Empty(t, rec.Header().Get("Cache-Control"))
		require.Empty(t, rec.Header().Get("Retry-After"))
	}

	rec := serve(handler, as("ann", get("/")))
	require.Equal(t, http.StatusTooManyRequests, rec.Code)
	require.Equal(t, `"user";q=2;w=120`, field(t, rec.Header(), "RateLimit-Policy"))
	require.Equal(t, `"user";r=0;t=60`, field(t, rec.Header(), "RateLimit"))
	require.Equal(t, "60", field(t, rec.Header(), "Retry-After"))
	require.Equal(t, "no-store", field(t, rec.Header(), "Cache-Control"))
	require.Equal(t, "application/problem+json", field(t, rec.Header(), "Content-Type"))
	require.Equal(t, strconv.Itoa(rec.Body.Len()), field(t, rec.Header(), "Content-Length"))
	require.JSONEq(t, `{"type":"/errors/rate-limited","title":"Too Many Requests","status":429,"code":"RATE_LIMITED","policy":"user","violated-policies":["user"],"retryAfterSeconds":60}`, rec.Body.String())

	require.Equal(t, http.StatusOK, serve(handler, as("ben", get("/"))).Code, "another user")
}

func TestWithoutPolicies(t *testing.T) {
	for name, domain := range map[string]string{"unknown domain": "elsewhere", "missing attribute": "payments"} {
		t.Run(name, func(t *testing.T) {
			const policies = `
domain: payments
policies:
  - {id: user, key: [user], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: closed, onMissingKey: skip}
`
			handler := newServer(t, policies, httplimit.Options{Domain: domain, Attributes: []httplimit.Attribute{httplimit.Func("user", user)}})
			for range 3 {
				rec := serve(handler, get("/"))
				require.Equal(t, http.StatusOK, rec.Code)
				require.NotContains(t, rec.Header(), "Ratelimit")
				require.NotContains(t, rec.Header(), "Ratelimit-Policy")
			}
		})
	}
}

// TestStoreDown: open policies let through, closed ones deny with 503.
func TestStoreDown(t *testing.T) {
	handler := newServer(t, "", forUsers(httplimit.Options{Limiter: newLimiter(t, userPolicies, downStore{})}))
	rec := serve(handler, as("ann", get("/")))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Equal(t, `"user";q=2;w=120`, field(t, rec.Header(), "RateLimit-Policy"))
	require.Empty(t, rec.Header().Values("RateLimit"), "nothing is known of what is left")
	require.NotEmpty(t, field(t, rec.Header(), "Retry-After"))
	require.Equal(t, "no-store", field(t, rec.Header(), "Cache-Control"))
	require.Equal(t, "application/problem+json", field(t, rec.Header(), "Content-Type"))
	var problem struct {
		Type   string
		Status int
	}
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &problem))
	require.Equal(t, "/errors/temporary-reduced-capacity", problem.Type)
	require.Equal(t, http.StatusServiceUnavailable, problem.Status)

	open := newServer(t, "", forUsers(httplimit.Options{Limiter: newLimiter(t, strings.Replace(userPolicies, "closed", "open", 1), downStore{})}))
	rec = serve(open, as("ann", get("/")))
	require.Equal(t, http.StatusOK, rec.Code)
	require.Equal(t, `"user";q=2;w=120`, field(t, rec.Header(), "RateLimit-Policy"))
}

// TestHangingUpGainsNothing: a client that is gone before the store has counted its request does not get it done.
func TestHangingUpGainsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ran := 0
	count := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { ran++ })
	limiter := newLimiter(t, strings.ReplaceAll(userPolicies, "closed", "open"), nil)
	handler := newMiddleware(t, "", forUsers(httplimit.Options{Limiter: limiter})).Handler(count)
	rec := serve(handler, as("ann", get("/").WithContext(ctx)))
	require.Equal(t, http.StatusServiceUnavailable, rec.Code)
	require.Zero(t, ran)

	uncounted := newMiddleware(t, "", httplimit.Options{Limiter: limiter, Domain: "other"}).Handler(count)
	serve(uncounted, get("/").WithContext(ctx))
	require.Equal(t, 1, ran, "no store had to be asked")
}

func TestCost(t *testing.T) {
	cost := func(r *http.Request) uint64 {
		n, err := strconv.ParseUint(r.URL.Query().Get("n"), 10, 64)
		require.NoError(t, err)
		return n
	}
	handler := newServer(t, userPolicies, forUsers(httplimit.Options{Cost: cost}))
	tests := []struct {
		n, status int
		left      string
	}{
		{0, 200, `"user";r=2;t=120`}, // looks only
		{3, 429, ""},                 // never fits
		{2, 200, `"user";r=0;t=60`},
		{0, 429, `"user";r=0;t=60`}, // there is none left
	}
	for _, tt := range tests {
		rec := serve(handler, as("ann", get("/?n="+strconv.Itoa(tt.n))))
		require.Equal(t, tt.status, rec.Code, "cost %d", tt.n)
		require.Equal(t, tt.left, rec.Header().Get("RateLimit"), "cost %d", tt.n)
		if tt.n == 3 {
			require.Empty(t, rec.Header().Values("Retry-After"), "no waiting helps")
		}
	}
}

func TestSkip(t *testing.T) {
	m := newMiddleware(t, userPolicies, forUsers(httplimit.Options{Skip: func(r *http.Request) bool { return r.URL.Path == "/healthz" }}))
	handler := m.Handler(http.HandlerFunc(hello))
	for range 5 {
		rec := serve(handler, as("ann", get("/healthz")))
		require.Equal(t, http.StatusOK, rec.Code)
		require.NotContains(t, rec.Header(), "Ratelimit")
		require.True(t, m.Allow(rec, as("ann", get("/healthz"))))
	}
	require.Equal(t, `"user";r=1;t=60`, serve(handler, as("ann", get("/"))).Header().Get("RateLimit"))
}

func TestDeniedHandler(t *testing.T) {
	var seen httplimit.Denial
	denied := func(w http.ResponseWriter, r *http.Request, d *httplimit.Denial) {
		seen = httplimit.Denial{Status: d.Status, Problem: bytes.Clone(d.Problem)}
		require.False(t, d.Decision.Allowed)
		http.Error(w, "slow down, "+r.URL.Path, http.StatusTeapot)
	}
	handler := newServer(t, userPolicies, forUsers(httplimit.Options{Denied: denied, Cost: func(*http.Request) uint64 { return 2 }}))
	serve(handler, as("ann", get("/x")))
	rec := serve(handler, as("ann", get("/x")))
	require.Equal(t, http.StatusTeapot, rec.Code)
	require.Equal(t, "slow down, /x\n", rec.Body.String())
	require.Equal(t, "120", field(t, rec.Header(), "Retry-After"))
	require.Equal(t, `"user";r=0;t=120`, field(t, rec.Header(), "RateLimit"))
	require.Equal(t, "no-store", field(t, rec.Header(), "Cache-Control"))
	require.Equal(t, http.StatusTooManyRequests, seen.Status)
	require.True(t, json.Valid(seen.Problem))
}

func TestOnDecision(t *testing.T) {
	var log []string
	handler := newServer(t, userPolicies, forUsers(httplimit.Options{OnDecision: func(r *http.Request, d *ratelimit.Decision) {
		log = append(log, r.URL.Path+" "+strconv.FormatBool(d.Allowed)+" "+d.Checks[0].Policy.ID)
	}}))
	for range 3 {
		serve(handler, as("ann", get("/x")))
	}
	require.Equal(t, []string{"/x true per-user", "/x true per-user", "/x false per-user"}, log)
}

func TestAllow(t *testing.T) {
	m := newMiddleware(t, userPolicies, forUsers(httplimit.Options{}))
	for range 2 {
		rec := httptest.NewRecorder()
		require.True(t, m.Allow(rec, as("ann", get("/"))))
		require.Equal(t, `"user";q=2;w=120`, field(t, rec.Header(), "RateLimit-Policy"))
		require.Zero(t, rec.Body.Len())
	}
	rec := httptest.NewRecorder()
	require.False(t, m.Allow(rec, as("ann", get("/"))))
	require.Equal(t, http.StatusTooManyRequests, rec.Code)
	require.Equal(t, "60", field(t, rec.Header(), "Retry-After"))
	require.Contains(t, rec.Body.String(), "RATE_LIMITED")
}

func TestTell(t *testing.T) {
	told := 0
	m := newMiddleware(t, userPolicies, forUsers(httplimit.Options{
		OnDecision: func(*http.Request, *ratelimit.Decision) { told++ },
		Skip:       func(r *http.Request) bool { return r.URL.Path == "/healthz" },
	}))
	tell := func(target string) http.Header {
		rec := httptest.NewRecorder()
		m.Tell(rec, as("ann", get(target)))
		require.Zero(t, rec.Body.Len())
		return rec.Result().Header
	}
	require.Equal(t, `"user";r=2;t=120`, field(t, tell("/"), "RateLimit"))
	require.Equal(t, `"user";q=2;w=120`, field(t, tell("/"), "RateLimit-Policy"))
	require.Empty(t, tell("/healthz"))
	require.Zero(t, told, "nothing was decided")
	for range 2 {
		require.True(t, m.Allow(httptest.NewRecorder(), as("ann", get("/"))))
	}
	header := tell("/")
	require.Equal(t, `"user";r=0;t=60`, field(t, header, "RateLimit"))
	require.Empty(t, header.Get("Retry-After"), "nothing was denied")
}

// TestHead: a denial of HEAD is one without a body.
func TestHead(t *testing.T) {
	server := httptest.NewServer(newServer(t, userPolicies, forUsers(httplimit.Options{})))
	defer server.Close()
	resp, err := server.Client().Head(server.URL) // nobody is logged in: the closed policy lacks its key
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	require.Positive(t, resp.ContentLength)
}

func TestNewTellsAllFaults(t *testing.T) {
	_, err := httplimit.New(httplimit.Options{Attributes: []httplimit.Attribute{
		httplimit.Func("user", user), httplimit.Header("user", "X-User"), httplimit.Func("", user), httplimit.Func("plan", nil),
		httplimit.ClientIP(httplimit.Proxies{Hops: -1, Trusted: []netip.Prefix{{}, netip.MustParsePrefix("::ffff:10.0.0.0/104")}}),
		{},
	}})
	for _, want := range []string{"httplimit: ", "no limiter", "attribute user is given twice", `attribute "":`, `attribute "plan":`, "attribute ip: -1 hops", "an invalid network", "one of IPv4", "the zero attribute"} {
		require.ErrorContains(t, err, want)
	}
}

func TestPanicKeepsTheFields(t *testing.T) {
	limit := newMiddleware(t, userPolicies, forUsers(httplimit.Options{}))
	inner := limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Add("RateLimit-Policy", `"user";q=9;w=9`)
		panic(errors.New("broken"))
	}))
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			require.EqualError(t, recover().(error), "broken")
			http.Error(w, "sorry", http.StatusInternalServerError)
		}()
		inner.ServeHTTP(w, r)
	})
	rec := serve(handler, as("ann", get("/")))
	require.Equal(t, http.StatusInternalServerError, rec.Code)
	require.Equal(t, `"user";q=2;w=120`, field(t, rec.Header(), "RateLimit-Policy"))
	require.Equal(t, `"user";r=1;t=60`, field(t, rec.Header(), "RateLimit"))
}
