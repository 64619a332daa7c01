package explain_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
	"github.com/envoy-rls/envoy-rls/internal/explain"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const policies = `
domain: edge
policies:
  - {id: free, match: {plan: free}, key: [apiKey], algorithm: token-bucket, capacity: 3, refillPerMinute: 60, onStoreFailure: local}
  - {id: calls, key: [ip], algorithm: sliding-log, limit: 5, window: 10s, onStoreFailure: closed, onMissingKey: skip}
  - {id: model, match: {model: "*"}, key: [model], algorithm: token-bucket, charge: postpaid, capacity: 9, refillPerMinute: 60, onStoreFailure: open}
`

// service is a limiter and what explains it, by a clock that stands still.
type service struct {
	set     *policy.Set
	store   *memorybackend.Store
	limiter *ratelimit.Limiter
	server  *httptest.Server
}

func start(t *testing.T) *service {
	t.Helper()
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(policies)})
	require.NoError(t, err)
	s := &service{set: set, store: memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10, Now: func() int64 { return 0 }})}
	s.limiter = ratelimit.New(ratelimit.Options{Store: s.store, Policies: set})
	s.server = httptest.NewServer(explain.Handler(func() *policy.Set { return s.set }, s.store))
	t.Cleanup(s.server.Close)
	return s
}

func request(t *testing.T, attributes ...string) *descriptors.Request {
	t.Helper()
	var list []descriptors.Attribute
	for _, a := range attributes {
		name, value, _ := strings.Cut(a, "=")
		list = append(list, descriptors.Attribute{Name: name, Value: value})
	}
	req := &descriptors.Request{Domain: []byte("edge")}
	require.NoError(t, req.SetAttributes(list))
	return req
}

func (s *service) check(t *testing.T, req *descriptors.Request) ratelimit.Decision {
	t.Helper()
	call := req.Begin(s.limiter)
	defer call.Release()
	return call.Check(t.Context()).Clone()
}

func TestLiveSpendsNothing(t *testing.T) {
	s := start(t)
	free := request(t, "plan=free", "apiKey=k1", "ip=192.0.2.1", "model=m")
	s.check(t, free)

	report := request(t, "model=m")
	report.SetCost(5, false)
	refund := request(t, "plan=free", "apiKey=k1", "ip=192.0.2.1")
	refund.SetCost(1, true)
	large := request(t, "plan=free", "apiKey=k1")
	large.SetCost(math.MaxUint64, false)
	for _, req := range []*descriptors.Request{free, report, refund, large} {
		for range 20 {
			_, err := explain.Ask(t.Context(), adminhttp.Client{Addr: s.server.URL}, req, false)
			require.NoError(t, err)
		}
	}
	d := s.check(t, free)
	require.True(t, d.Allowed)
	require.Equal(t, 1.0, d.Checks[0].Result.Remaining, "two of three are charged by the two calls, nothing by the questions")
	require.Equal(t, 3.0, d.Checks[1].Result.Remaining)
	require.Equal(t, 9.0, d.Checks[2].Result.Remaining)
	require.True(t, s.check(t, free).Allowed)
	require.False(t, s.check(t, free).Allowed)
}

func TestLiveTellsOfBuckets(t *testing.T) {
	s := start(t)
	free := request(t, "plan=free", "apiKey=k1", "ip=192.0.2.1")
	s.check(t, free)
	r, err := explain.Ask(t.Context(), adminhttp.Client{Addr: strings.TrimPrefix(s.server.URL, "http://")}, free, false)
	require.NoError(t, err)
	require.True(t, r.Answer.Allowed)
	require.Contains(t, r.String(), "answer now, of which nothing was spent\n  allowed\n  free: 2 left, says store\n  calls: 4 left, says store\n")
	s.check(t, free)
	s.check(t, free)
	r, err = explain.Ask(t.Context(), adminhttp.Client{Addr: s.server.URL + "/"}, free, false)
	require.NoError(t, err)
	require.Contains(t, r.String(), "  denied\n  free: denies, 0 left, 1s to wait, says store\n")
	require.Equal(t, "1", r.Answer.RetryAfter)
	require.NotContains(t, r.String(), "k1")

	hashed := request(t, "plan=free", "apiKey="+r.Attributes[0].Value)
	r, err = explain.Ask(t.Context(), adminhttp.Client{Addr: s.server.URL}, hashed, false)
	require.NoError(t, err)
	require.True(t, r.LooksHashed)
	require.True(t, r.Answer.Allowed, "another bucket")
	r, err = explain.Ask(t.Context(), adminhttp.Client{Addr: s.server.URL}, hashed, true)
	require.NoError(t, err)
	require.False(t, r.Answer.Allowed)

	full := explain.Full(t.Context(), s.set, free, false)
	require.Contains(t, full.String(), "answer if every bucket is full\n  allowed\n  free: 2 left\n")
}

func TestReportSurvivesJSON(t *testing.T) {
	s := start(t)
	want := explain.Live(t.Context(), s.set, s.store, request(t, "plan=free", "ip=unknown", "ip=192.0.2.9", "colour=red"), false)
	got, err := explain.Ask(t.Context(), adminhttp.Client{Addr: s.server.URL}, request(t, "plan=free", "ip=unknown", "ip=192.0.2.9", "colour=red"), false)
	require.NoError(t, err)
	require.Equal(t, want.String(), got.String())
	require.Contains(t, got.String(), "lacks apiKey for its key: the policy is skipped (onMissingKey)")
}

func TestHandlerRefuses(t *testing.T) {
	s := start(t)
	ask := func(method, kind, body string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(method, explain.Path, strings.NewReader(body))
		r.Header.Set("Content-Type", kind)
		explain.Handler(func() *policy.Set { return s.set }, s.store).ServeHTTP(w, r)
		return w
	}
	const sound = `{"descriptors": [{"entries": [{"key": "ip", "value": "192.0.2.1"}]}]}`
	tests := []struct {
		name, method, kind, body string
		status                   int
		want                     string
	}{
		{"sound", "POST", "application/json; charset=utf-8", sound, 200, `"domain": "edge"`},
		{"a page", "GET", "application/json", "", 405, "want POST"},
		{"a form of another site", "POST", "text/plain", sound, 415, "want Content-Type"},
		{"no JSON", "POST", "application/json", "ip=1", 400, "not a RateLimitRequest"},
		{"an unknown field", "POST", "application/json", `{"domian": "edge"}`, 400, "domian"},
		{"no descriptors", "POST", "application/json", `{}`, 400, "needs descriptors"},
		{"too much", "POST", "application/json", `{"domain": "` + strings.Repeat("x", 2<<20) + `"}`, 400, "too large"},
		{"many descriptors", "POST", "application/json", `{"descriptors": [` + strings.Repeat(`{},`, 100) + `{}]}`, 200, `"truncated": true`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := ask(tt.method, tt.kind, tt.body)
			require.Equal(t, tt.status, w.Code, w.Body)
			require.Contains(t, w.Body.String(), tt.want)
			require.True(t, json.Valid(w.Body.Bytes()))
			require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
		})
	}
	s.set = nil
	require.Equal(t, 503, ask("POST", "application/json", sound).Code)
}

func TestAskRefused(t *testing.T) {
	s := start(t)
	s.set = nil
	_, err := explain.Ask(t.Context(), adminhttp.Client{Addr: s.server.URL}, request(t, "ip=192.0.2.1"), false)
	require.ErrorIs(t, err, adminhttp.ErrRefused)
	require.ErrorContains(t, err, "503 Service Unavailable: no policy set is loaded")

	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	_, err = explain.Ask(t.Context(), adminhttp.Client{Addr: other.URL}, request(t, "ip=192.0.2.1"), false)
	require.ErrorContains(t, err, "is that the admin address of envoy-rls?")

	s.server.Close()
	_, err = explain.Ask(t.Context(), adminhttp.Client{Addr: s.server.URL}, request(t, "ip=192.0.2.1"), false)
	require.ErrorContains(t, err, "connection refused")
}

// A question makes no answer that is many times as long, however many policies there are: anybody who reaches the service may ask.
func TestAnAnswerIsNotAThousandTimesTheQuestion(t *testing.T) {
	var file strings.Builder
	file.WriteString("domain: edge\npolicies:\n")
	for i := range 500 {
		fmt.Fprintf(&file, "  - {id: p%d, match: {plan: x%d}, key: [ip], algorithm: token-bucket, capacity: 2, refillPerMinute: 1, onStoreFailure: open}\n", i, i)
	}
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(file.String())})
	require.NoError(t, err)
	handler := explain.Handler(func() *policy.Set { return set }, memorybackend.New(memorybackend.Options{MaxBuckets: 8}))
	many := make([]string, 64)
	for i := range many {
		many[i] = fmt.Sprintf(`{"entries":[{"key":"plan","value":"%d%s"}]}`, i, strings.Repeat("z", 10_000))
	}
	for name, list := range map[string]string{
		"one long value":   `{"entries":[{"key":"plan","value":"` + strings.Repeat("y", 900_000) + `"}]}`,
		"many long values": strings.Join(many, ","),
	} {
		r := httptest.NewRequest(http.MethodPost, explain.Path, strings.NewReader(`{"descriptors":[`+list+`]}`))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, name)
		require.Less(t, w.Body.Len(), 4<<20, name)
	}
}
