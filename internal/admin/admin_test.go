package admin_test

import (
	"context"
	"encoding/json"
	"flag"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// pages are the admin pages of a service whose state the test sets.
type pages struct {
	notReady string
	set      *policy.Set
	status   admin.Status
}

func (p *pages) handler() http.Handler {
	return admin.Handler(admin.Options{
		Ready:  func() string { return p.notReady },
		Set:    func() *policy.Set { return p.set },
		Status: func() admin.Status { return p.status },
		Explain: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{}\n"))
		}),
		Buckets: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("{}\n"))
		}),
		Instances: func(context.Context) admin.InstanceList {
			return admin.InstanceList{Scope: "this instance", Instances: []admin.Instance{{ID: "one", Policies: "abc"}}}
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("metrics\n"))
		}),
	})
}

func (p *pages) ask(method, path string) *httptest.ResponseRecorder {
	answer := httptest.NewRecorder()
	p.handler().ServeHTTP(answer, httptest.NewRequest(method, path, nil))
	return answer
}

var redisStatus = admin.Status{Store: admin.StoreStatus{Kind: "redis", Redis: &admin.RedisStatus{
	Nodes: []admin.NodeStatus{{Node: "a:1", Connected: true, Breaker: "open", Reason: "dial"}},
}}}

func TestPages(t *testing.T) {
	loaded, err := policy.Load("testdata/policies.yaml")
	require.NoError(t, err)
	tests := []struct {
		name, method, path string
		pages              pages
		status             int
		contentType        string
		body               string // part of it
	}{
		{"alive", "GET", "/healthz", pages{notReady: "starting"}, 200, "text/plain; charset=utf-8", "ok\n"},
		{"ready", "GET", "/readyz", pages{}, 200, "text/plain; charset=utf-8", "ready\n"},
		{"not ready", "GET", "/readyz", pages{notReady: "no policy set is loaded"}, 503, "text/plain; charset=utf-8", "no policy set is loaded\n"},
		{"metrics", "GET", "/metrics", pages{}, 200, "text/plain; charset=utf-8", "metrics\n"},
		{"status", "GET", "/api/v1/status", pages{status: admin.Status{Version: "v1"}}, 200, "application/json", `"version": "v1"`},
		{"policies", "GET", "/api/v1/policies", pages{set: loaded}, 200, "application/json", `"id": "api-free"`},
		{"no policies", "GET", "/api/v1/policies", pages{}, 503, "application/json", `"error": "no policy set is loaded"`},
		{"instances", "GET", "/api/v1/instances", pages{}, 200, "application/json", `"policies": "abc"`},
		{"shards", "GET", "/api/v1/shards", pages{status: redisStatus}, 200, "application/json", `"node": "a:1"`},
		{"breakers", "GET", "/api/v1/breakers", pages{status: redisStatus}, 200, "application/json", `"reason": "dial"`},
		{"no shards", "GET", "/api/v1/shards", pages{}, 200, "application/json", `"shards": []`},
		{"post to the breakers", "POST", "/api/v1/breakers", pages{}, 405, "application/json", `can only be read`},
		{"head", "HEAD", "/api/v1/status", pages{}, 200, "application/json", ""},
		{"post", "POST", "/api/v1/policies", pages{set: loaded}, 405, "application/json", `can only be read`},
		{"delete", "DELETE", "/readyz", pages{}, 405, "application/json", `can only be read`},
		{"root", "GET", "/", pages{}, 200, "application/json", `"path": "/api/v1/status"`},
		{"post to the root", "POST", "/", pages{}, 405, "application/json", `can only be read`},
		{"unknown", "GET", "/api/v2/status", pages{}, 404, "application/json", `there is no /api/v2/status`},
		{"unknown with odd bytes", "GET", "/%ff%22", pages{}, 404, "application/json", "there is no /\uFFFD"},
		{"below a page", "GET", "/healthz/x", pages{}, 404, "application/json", `there is no /healthz/x`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := tt.pages.ask(tt.method, tt.path)
			require.Equal(t, tt.status, got.Code)
			if tt.name != "metrics" {
				require.Equal(t, tt.contentType, got.Header().Get("Content-Type"))
			}
			require.Equal(t, "no-store", got.Header().Get("Cache-Control"))
			if tt.contentType == "application/json" && tt.method != "HEAD" {
				require.True(t, json.Valid(got.Body.Bytes()), got.Body)
			}
			require.Contains(t, got.Body.String(), tt.body)
			if tt.status == 405 {
				require.Equal(t, "GET, HEAD", got.Header().Get("Allow"))
			}
		})
	}
}

// TestRootListsEveryPage follows the list, so that no path on it is a dead end.
func TestRootListsEveryPage(t *testing.T) {
	loaded, err := policy.Load("testdata/policies.yaml")
	require.NoError(t, err)
	p := pages{set: loaded}
	var list struct {
		Pages []struct{ Path, Shows string }
	}
	require.NoError(t, json.Unmarshal(p.ask("GET", "/").Body.Bytes(), &list))
	require.Len(t, list.Pages, 12)
	for _, page := range list.Pages {
		require.Equal(t, 200, p.ask("GET", page.Path).Code, page.Path)
		require.NotEmpty(t, page.Shows)
	}
}

// TestPolicies shows every field of a policy.
func TestPolicies(t *testing.T) {
	set, err := policy.Load("testdata/policies.yaml")
	require.NoError(t, err)
	got := (&pages{set: set}).ask("GET", "/api/v1/policies").Body.Bytes()
	file := filepath.Join("testdata", "policies.golden")
	if *update {
		require.NoError(t, os.WriteFile(file, got, 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
	require.NotContains(t, string(got), "secret1", "API keys are never shown")
}

func TestStatus(t *testing.T) {
	failed := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := pages{status: admin.Status{
		Version: "v1", GoVersion: "go1", Ready: true,
		Policies: admin.PolicyStatus{Path: "p.yaml", Version: "abc", Domains: []string{"edge"}, Error: "p.yaml:1:1: a fault\nx\n^", FailedAt: &failed},
		Store:    admin.StoreStatus{Kind: "memory", MemoryStatus: &admin.MemoryStatus{Buckets: 3}},
	}}
	var got admin.Status
	require.NoError(t, json.Unmarshal(p.ask("GET", "/api/v1/status").Body.Bytes(), &got))
	require.Equal(t, p.status, got, "the fault is shown whole")

	p.status.Store = admin.StoreStatus{Kind: "redis", Redis: &admin.RedisStatus{Nodes: []admin.NodeStatus{{Node: "10.0.0.1:6379", Breaker: "closed"}}}}
	body := p.ask("GET", "/api/v1/status").Body.String()
	require.Contains(t, body, "10.0.0.1:6379")
	require.NotContains(t, body, "buckets", "Redis knows, we don't")
}

func TestDebugPages(t *testing.T) {
	for url, want := range map[string]int{
		"http://localhost:6060/debug/pprof/": 200, "http://127.0.0.1/debug/pprof/goroutine": 200, "http://[::1]:6060/debug/pprof/symbol": 200,
		"http://localhost/debug/pprof/cmdline": 404, "http://evil.example:6060/debug/pprof/": 403,
	} {
		answer := httptest.NewRecorder()
		admin.DebugHandler().ServeHTTP(answer, httptest.NewRequest("GET", url, nil))
		require.Equal(t, want, answer.Code, url)
	}
	answer := httptest.NewRecorder()
	(&pages{}).handler().ServeHTTP(answer, httptest.NewRequest("GET", "/debug/pprof/", nil))
	require.Equal(t, 404, answer.Code, "profiles are only on the debug address")
}

func TestServerLetsNobodyLinger(t *testing.T) {
	s := admin.Server(http.NotFoundHandler(), time.Minute)
	require.Positive(t, s.ReadHeaderTimeout)
	require.Positive(t, s.ReadTimeout)
	require.Positive(t, s.IdleTimeout)
	require.Equal(t, time.Minute, s.WriteTimeout)
}
