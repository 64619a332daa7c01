package idempotency_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

func TestRetryIsFree(t *testing.T) {
	var c counter
	s := newService(t, idempotency.Options{}, c.ServeHTTP)
	first := s.serve(post("{}"))
	require.Equal(t, http.StatusCreated, first.Code)
	require.Empty(t, first.Header().Get(idempotency.FieldReplayed))
	for i := range 8 {
		s.serve(httptest.NewRequest(http.MethodPost, "/", nil)) // somebody else
		rec := s.serve(post("{}"))
		require.Equal(t, http.StatusCreated, rec.Code)
		require.Equal(t, "payment 1", rec.Body.String())
		require.Equal(t, "true", rec.Header().Get(idempotency.FieldReplayed))
		require.Equal(t, "9", rec.Header().Get("Content-Length"))
		require.Equal(t, 1+max(0, i-4), s.charged(t), "replay %d", i)
		require.Contains(t, rec.Header().Get("RateLimit"), `"user";r=`, "also of what is free")
	}
	require.Equal(t, 1+8, c.runs)
	require.Equal(t, idempotency.Ran, s.took()[0])
}

// TestOneKeyForEver: a client that sends one key 10,000 times is charged for all but 5.
func TestOneKeyForEver(t *testing.T) {
	var c counter
	s := newService(t, idempotency.Options{}, c.ServeHTTP)
	const requests, clients = 10_000, 8
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range requests / clients {
				s.serve(post("{}"))
			}
		})
	}
	all.Wait()
	require.Equal(t, 1, c.runs)
	require.Equal(t, requests-idempotency.FreeReplays, s.charged(t))
	count := map[idempotency.Outcome]int{}
	for _, o := range s.took() {
		count[o]++
	}
	require.Equal(t, 1, count[idempotency.Ran])
	require.Equal(t, idempotency.FreeReplays, count[idempotency.FreeReplay])
	require.Equal(t, requests-1-idempotency.FreeReplays, count[idempotency.ChargedReplay]+count[idempotency.InFlight])
}

// TestWithoutQuota: what is free stays free when nothing is left, what is not is denied.
func TestWithoutQuota(t *testing.T) {
	var c counter
	limit, err := httplimit.New(httplimit.Options{Limiter: newLimiter(t, 2), Attributes: []httplimit.Attribute{httplimit.Header("user", "Account")}})
	require.NoError(t, err)
	s := newService(t, idempotency.Options{Limit: limit.Handler}, c.ServeHTTP)
	s.serve(post("{}"))
	other := post("{}")
	other.Header.Set(idempotency.FieldKey, `"other"`)
	s.serve(other)
	for range idempotency.FreeReplays {
		require.Equal(t, http.StatusCreated, s.serve(post("{}")).Code)
	}
	for _, r := range []*http.Request{post("{}"), post("another fingerprint")} {
		rec := s.serve(r)
		require.Equal(t, http.StatusTooManyRequests, rec.Code)
		require.NotContains(t, rec.Body.String(), "payment")
	}
	outcomes := s.took()
	require.Equal(t, []idempotency.Outcome{idempotency.Denied, idempotency.Denied}, outcomes[len(outcomes)-2:])
}

// TestDeniedIsNotStored: whatever the limiter answers a request that it denies, a retry is decided anew.
func TestDeniedIsNotStored(t *testing.T) {
	var c counter
	denies := true
	limit := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if denies {
				w.WriteHeader(http.StatusTeapot)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
	s := newService(t, idempotency.Options{Limit: limit}, c.ServeHTTP)
	require.Equal(t, http.StatusTeapot, s.serve(post("{}")).Code)
	denies = false
	require.Equal(t, http.StatusCreated, s.serve(post("{}")).Code)
	require.Equal(t, []idempotency.Outcome{idempotency.Denied, idempotency.Ran}, s.took())
}

// TestTwoAtOnce: one runs, the other is told to wait, and charged.
func TestTwoAtOnce(t *testing.T) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	var c counter
	s := newService(t, idempotency.Options{}, func(w http.ResponseWriter, r *http.Request) {
		close(begun)
		<-goOn
		c.ServeHTTP(w, r)
	})
	var first *httptest.ResponseRecorder
	var running sync.WaitGroup
	running.Go(func() { first = s.serve(post("{}")) })
	<-begun
	second := s.serve(post("{}"))
	requireProblem(t, second, http.StatusConflict, "IDEMPOTENCY_KEY_IN_FLIGHT")
	require.Equal(t, "1", second.Header().Get("Retry-After"))
	requireProblem(t, s.serve(post("other")), http.StatusUnprocessableEntity, "IDEMPOTENCY_KEY_REUSED")
	close(goOn)
	running.Wait()
	require.Equal(t, http.StatusCreated, first.Code)
	require.Equal(t, "payment 1", s.serve(post("{}")).Body.String())
	require.Equal(t, 3, s.charged(t))
	require.Equal(t, []idempotency.Outcome{idempotency.InFlight, idempotency.Reused, idempotency.Ran, idempotency.FreeReplay}, s.took())
}

// TestPassesThrough: requests without a meaning for the middleware are handled, and charged, each time.
func TestPassesThrough(t *testing.T) {
	get := post("")
	get.Method = http.MethodGet
	noKey, noAccount := post("{}"), post("{}")
	noKey.Header.Del(idempotency.FieldKey)
	noAccount.Header.Del("Account")
	noAccount.Header.Set(idempotency.FieldKey, "malformed")
	for name, r := range map[string]*http.Request{"GET": get, "no key": noKey, "no account": noAccount} {
		t.Run(name, func(t *testing.T) {
			var c counter
			s := newService(t, idempotency.Options{RequireKey: name != "no key"}, c.ServeHTTP)
			for range 3 {
				s.serve(r)
			}
			require.Equal(t, 3, c.runs)
			require.Empty(t, s.took())
			if name != "no account" {
				require.Equal(t, 3, s.charged(t))
			}
		})
	}
}

func TestBadKeysAreRefusedAndCharged(t *testing.T) {
	noKey, bare, two := post("{}"), post("{}"), post("{}")
	noKey.Header.Del(idempotency.FieldKey)
	bare.Header.Set(idempotency.FieldKey, "8e03978e-40d5-43dd-bc93-6894a57f9324")
	two.Header.Add(idempotency.FieldKey, `"l"`)
	var c counter
	s := newService(t, idempotency.Options{RequireKey: true}, c.ServeHTTP)
	requireProblem(t, s.serve(noKey), http.StatusBadRequest, "IDEMPOTENCY_KEY_MISSING")
	requireProblem(t, s.serve(bare), http.StatusBadRequest, "IDEMPOTENCY_KEY_MALFORMED")
	requireProblem(t, s.serve(two), http.StatusBadRequest, "IDEMPOTENCY_KEY_MALFORMED")
	require.Zero(t, c.runs)
	require.Equal(t, 3, s.charged(t))
	require.Equal(t, []idempotency.Outcome{idempotency.Refused, idempotency.Refused, idempotency.Refused}, s.took())
}

// stubStore fails, or finds what a test wants found.
type stubStore struct {
	idempotency.Store
	found idempotency.Found
	err   error
}

func (s *stubStore) Claim(context.Context, idempotency.Claim) (idempotency.Found, error) {
	return s.found, s.err
}

func TestStoreFails(t *testing.T) {
	down := &stubStore{err: errors.New("down")}
	var c counter
	s := newService(t, idempotency.Options{Store: down}, c.ServeHTTP)
	rec := s.serve(post("{}"))
	requireProblem(t, rec, http.StatusServiceUnavailable, "IDEMPOTENCY_UNAVAILABLE")
	require.Equal(t, "1", rec.Header().Get("Retry-After"))
	require.Zero(t, c.runs)
	require.EqualError(t, s.failures(), "idempotency: claim: down")

	s = newService(t, idempotency.Options{Store: down, FailOpen: true}, c.ServeHTTP)
	for i := range 2 {
		require.Equal(t, http.StatusCreated, s.serve(post("{}")).Code)
		require.Equal(t, i+1, s.charged(t))
	}
	require.Equal(t, []idempotency.Outcome{idempotency.RanOnly, idempotency.RanOnly}, s.took())
}

// TestForeignAnswers: what is in the store and no answer does not make a request run twice.
func TestForeignAnswers(t *testing.T) {
	for _, data := range []string{"", "abc", "\xff\xff\xff\xff{}", "\x00\x00\x00\x01{}", "\x00\x00\x00\x02{}", "\x00\x00\x00\x0d{\"kept\":true}", "\x00\x00\x00\x1a{\"kept\":true,\"status\":1000}"} {
		var c counter
		s := newService(t, idempotency.Options{Store: &stubStore{found: idempotency.Found{State: idempotency.Completed, Free: true, Data: []byte(data)}}}, c.ServeHTTP)
		requireProblem(t, s.serve(post("{}")), http.StatusConflict, "IDEMPOTENCY_RESPONSE_NOT_KEPT")
		require.Zero(t, c.runs)
		require.Equal(t, 1, s.charged(t))
	}
}

func TestNewTellsAllFaults(t *testing.T) {
	_, err := idempotency.New(idempotency.Options{TTL: 25 * 3600e9, Lease: -1, StoreTimeout: -1, MaxBody: -1, MaxResponse: 17 << 20})
	for _, want := range []string{"idempotency: no store", "no account", "no limit", "TTL 25h0m0s", "lease -1ns", "store timeout", "-1 bytes of body", "17825792 bytes of response"} {
		require.ErrorContains(t, err, want)
	}
}

func TestOutcomeNames(t *testing.T) {
	seen := map[string]bool{}
	for o := idempotency.Ran; o <= idempotency.Denied; o++ {
		require.Regexp(t, "^[a-z-]+$", o.String())
		seen[o.String()] = true
	}
	require.Len(t, seen, 10)
	require.Equal(t, "outcome 0", idempotency.Outcome(0).String())
	require.Equal(t, "outcome 11", (idempotency.Denied + 1).String())
}
