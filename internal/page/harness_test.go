package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/internal/page"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const policies = `
domain: edge
policies:
  - {id: free, match: {plan: [free, trial]}, key: [apiKey], hashTag: tenant, onMissingKey: skip, algorithm: token-bucket, capacity: 3, refillPerDay: 1, onStoreFailure: local}
  - {id: search, match: {route: "GET /v1/search*"}, key: [tenant], mode: shadow, onMissingKey: skip, algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}
  - {id: login, match: {route: POST /login}, key: [ip, username], onMissingKey: skip, algorithm: sliding-log, limit: 2, window: 1h, expose: never, onStoreFailure: closed}
`

// service is a page that follows a service with a store in memory.
type service struct {
	*page.Page
	rls    *rls.Service
	status atomic.Pointer[admin.Status]
	asked  atomic.Int64 // for the status
	opts   page.Options
}

func load(t testing.TB, text string) *policy.Set {
	t.Helper()
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(text)})
	require.NoError(t, err)
	return set
}

// newService makes one; change, if set, may change what the page is told.
func newService(t testing.TB, text string, change func(*page.Options)) *service {
	t.Helper()
	s := &service{}
	set := load(t, text)
	counts := metrics.New(metrics.Options{})
	counts.Use(set)
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 12, Now: func() int64 { return 1 }})
	limiter := ratelimit.New(ratelimit.Options{Store: store, Policies: set, OnDecision: func(d *ratelimit.Decision) {
		counts.OnDecision(d)
		s.OnDecision(d)
	}})
	s.status.Store(&admin.Status{
		Version: "v1.2.3", Ready: true, StartedAt: time.Now(), Policies: admin.PolicyStatus{Version: set.Version()},
		Store: admin.StoreStatus{Kind: "memory", MemoryStatus: &admin.MemoryStatus{Buckets: 3}},
	})
	s.opts = page.Options{
		Status: func() admin.Status {
			s.asked.Add(1)
			return *s.status.Load()
		},
		Set: limiter.Set, Counts: counts.Counts,
	}
	if change != nil {
		change(&s.opts)
	}
	s.Page = page.New(s.opts)
	s.Keys.Use(set)
	s.rls = rls.NewService(limiter, rls.Hooks{OnUnfed: s.OnUnfed, OnUnknownDomain: s.OnUnknownDomain})
	return s
}

// call makes one call with a descriptor: key, value, key, value …
func (s *service) call(t testing.TB, times int, entries ...string) {
	t.Helper()
	s.callDomain(t, times, "edge", entries)
}

func (s *service) callDomain(t testing.TB, times int, domain string, all ...[]string) {
	t.Helper()
	req := descriptors.Request{Domain: []byte(domain)}
	for _, entries := range all {
		var d descriptors.Descriptor
		for i := 0; i < len(entries); i += 2 {
			d.Entries = append(d.Entries, descriptors.Entry{Key: []byte(entries[i]), Value: []byte(entries[i+1])})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	for range times {
		var resp rls.Response
		require.NoError(t, s.rls.ShouldRateLimit(t.Context(), &req, &resp))
	}
}

// handler is the admin side with the page.
func (s *service) handler() http.Handler {
	nothing := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	return admin.Handler(admin.Options{
		Ready: func() string { return "" }, Set: s.opts.Set, Status: s.opts.Status, Metrics: nothing, Explain: nothing,
		Home: s.Home(), Routes: s.Routes(),
	})
}

func (s *service) get(path string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest("GET", path, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, r)
	return w
}

// html is the page.
func (s *service) html(t testing.TB) string {
	t.Helper()
	w := s.get("/", "Accept", "text/html,*/*;q=0.8")
	require.Equal(t, 200, w.Code)
	return w.Body.String()
}

// run runs the page until the test ends, or stop is called.
func (s *service) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

// stream reads events.
type stream struct {
	t    testing.TB
	body *http.Response
	in   *bufio.Reader
}

func (s *service) listen(t testing.TB, server *httptest.Server, query string) *stream {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/api/v1/events"+query, nil)
	require.NoError(t, err)
	body, err := server.Client().Do(r)
	require.NoError(t, err)
	t.Cleanup(func() { _ = body.Body.Close() })
	require.Equal(t, 200, body.StatusCode)
	require.Equal(t, "text/event-stream", body.Header.Get("Content-Type"))
	return &stream{t, body, bufio.NewReader(body.Body)}
}

// next gives the next event; empty: there is none any more.
func (s *stream) next() (name, data string) {
	s.t.Helper()
	for {
		line, err := s.in.ReadString('\n')
		if err != nil {
			return "", ""
		}
		line = strings.TrimSuffix(line, "\n")
		switch field, value, _ := strings.Cut(line, ": "); field {
		case "event":
			name = value
		case "data":
			data = value
		case "":
			if name != "" {
				require.True(s.t, json.Valid([]byte(data)), data)
				return name, data
			}
		}
	}
}
