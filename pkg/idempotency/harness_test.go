package idempotency_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// capacity is what each account may spend. Nothing comes back in the time of a test.
const capacity = 20_000

// service is a handler behind a limiter, behind the middleware under test.
type service struct {
	http.Handler
	limiter *ratelimit.Limiter
	limit   *httplimit.Middleware

	mu       sync.Mutex // guards what follows
	outcomes []idempotency.Outcome
	errs     []error
}

// newService completes o: a store in memory, the account from the field Account, the limiter's middleware.
func newService(t testing.TB, o idempotency.Options, next http.HandlerFunc) *service {
	t.Helper()
	s := &service{limiter: newLimiter(t, capacity)}
	var err error
	s.limit, err = httplimit.New(httplimit.Options{Limiter: s.limiter, Attributes: []httplimit.Attribute{httplimit.Header("user", "Account")}})
	require.NoError(t, err)
	if o.Store == nil {
		o.Store = idempotency.NewMemory(idempotency.MemoryOptions{})
	}
	if o.Limit == nil {
		o.Limit = s.limit.Handler
	}
	o.Account, o.Tell = account, s.limit.Tell
	o.OnOutcome = func(_ *http.Request, outcome idempotency.Outcome) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.outcomes = append(s.outcomes, outcome)
	}
	o.OnError = func(err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.errs = append(s.errs, err)
	}
	m, err := idempotency.New(o)
	require.NoError(t, err)
	s.Handler = m.Handler(next)
	return s
}

func newLimiter(t testing.TB, capacity int) *ratelimit.Limiter {
	t.Helper()
	f, err := policy.Parse("policies.yaml", fmt.Appendf(nil, `
policies:
  - {id: user, key: [user], algorithm: token-bucket, capacity: %d, refillPerDay: 10, onStoreFailure: closed, onMissingKey: skip}
`, capacity))
	require.NoError(t, err)
	set, err := policy.NewSet([]*policy.File{f})
	require.NoError(t, err)
	return ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{}), Policies: set})
}

func account(r *http.Request) (string, bool) {
	a := r.Header.Get("Account")
	return a, a != ""
}

// charged is how much the account ann has spent.
func (s *service) charged(t testing.TB) int {
	t.Helper()
	d, err := s.limiter.Peek(context.Background(), ratelimit.Request{Attributes: map[string]string{"user": "ann"}})
	require.NoError(t, err)
	return capacity - int(d.Checks[0].Result.Remaining)
}

// serve answers one request.
func (s *service) serve(r *http.Request) *httptest.ResponseRecorder {
	rec := httptest.NewRecorder()
	s.ServeHTTP(rec, r)
	return rec
}

// took gives the outcomes since it was asked last.
func (s *service) took() []idempotency.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.outcomes
	s.outcomes = nil
	return got
}

// failures gives the errors since it was asked last, in one.
func (s *service) failures() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := errors.Join(s.errs...)
	s.errs = nil
	return err
}

// post is a request of ann's with the key k.
func post(body string) *http.Request { return postTo("/payments", body) }

func postTo(target, body string) *http.Request {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(body))
	r.Header.Set("Account", "ann")
	r.Header.Set(idempotency.FieldKey, `"k"`)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// counter counts its runs and answers with their number.
type counter struct {
	mu   sync.Mutex
	runs int
}

func (c *counter) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, "payment %d", c.count())
}

func (c *counter) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	return c.runs
}

// requireProblem checks an answer that the middleware made.
func requireProblem(t testing.TB, rec *httptest.ResponseRecorder, status int, code string) {
	t.Helper()
	require.Equal(t, status, rec.Code, rec.Body)
	require.Equal(t, "application/problem+json", rec.Header().Get("Content-Type"))
	require.Equal(t, "no-store", rec.Header().Get("Cache-Control"))
	require.Contains(t, rec.Body.String(), fmt.Sprintf(`"status":%d,"code":"%s"`, status, code))
	require.Empty(t, rec.Header().Get(idempotency.FieldReplayed))
}
