package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/app"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// journal is a log that tests read.
type journal struct {
	mu    sync.Mutex
	text  bytes.Buffer
	lines chan string
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case j.lines <- string(b):
	default:
	}
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// instance is the whole service, with a client.
type instance struct {
	*app.App
	t        *testing.T
	policies string
	log      *journal
	conn     *grpc.ClientConn
	rls      rlsv3.RateLimitServiceClient
}

// options are those of a service on free ports.
func options(t testing.TB, policies string) (app.Options, *journal) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policies), 0o600))
	log := &journal{lines: make(chan string, 100)}
	return app.Options{
		Policies: file,
		GRPCAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", DebugAddr: "127.0.0.1:0",
		MaxBuckets: 1000, Version: "v-test",
		Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}, log
}

// newInstance makes a service that is not started.
func newInstance(t *testing.T, opts app.Options, log *journal) *instance {
	t.Helper()
	a, err := app.New(opts)
	require.NoError(t, err)
	return &instance{App: a, t: t, policies: opts.Policies, log: log}
}

// start runs a service until the test ends.
func start(t *testing.T, policies string) *instance {
	t.Helper()
	opts, log := options(t, policies)
	return launch(t, opts, log)
}

// launch does the same with other options.
func launch(t *testing.T, opts app.Options, log *journal) *instance {
	t.Helper()
	i := newInstance(t, opts, log)
	require.NoError(t, i.Start(t.Context()))
	i.connect()
	t.Cleanup(func() { require.NoError(t, i.Stop(context.Background())) })
	return i
}

// connect makes the client. It is closed before the service stops.
func (i *instance) connect() {
	i.t.Helper()
	var err error
	i.conn, err = grpc.NewClient(i.GRPCAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(i.t, err)
	i.rls = rlsv3.NewRateLimitServiceClient(i.conn)
	i.t.Cleanup(func() { require.NoError(i.t, i.conn.Close()) })
}

// call asks for one request of domain edge with these attributes: key, value, key, value …
func (i *instance) call(attrs ...string) *rlsv3.RateLimitResponse {
	i.t.Helper()
	answer, err := i.rls.ShouldRateLimit(i.t.Context(), request("edge", attrs...))
	require.NoError(i.t, err)
	return answer
}

func request(domain string, attrs ...string) *rlsv3.RateLimitRequest {
	d := &ratelimitv3.RateLimitDescriptor{}
	for j := 0; j < len(attrs); j += 2 {
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: attrs[j], Value: attrs[j+1]})
	}
	return &rlsv3.RateLimitRequest{Domain: domain, Descriptors: []*ratelimitv3.RateLimitDescriptor{d}}
}

// admitted counts how many of n calls in a row are let through.
func (i *instance) admitted(n int, attrs ...string) int {
	i.t.Helper()
	admitted := 0
	for range n {
		if i.call(attrs...).GetOverallCode() == rlsv3.RateLimitResponse_OK {
			admitted++
		}
	}
	return admitted
}

// header is a field of an answer; empty if there is none.
func header(answer *rlsv3.RateLimitResponse, name string) string {
	for _, h := range answer.GetResponseHeadersToAdd() {
		if strings.EqualFold(h.GetKey(), name) {
			return string(h.GetRawValue()) + h.GetValue()
		}
	}
	return ""
}

// reload writes the policy file and loads it.
func (i *instance) reload(policies string) error {
	i.t.Helper()
	next := i.policies + ".next"
	require.NoError(i.t, os.WriteFile(next, []byte(policies), 0o600))
	require.NoError(i.t, os.Rename(next, i.policies))
	return i.Reload(i.t.Context())
}

// page reads a page of the admin address.
func (i *instance) page(path string) (int, string) {
	i.t.Helper()
	return get(i.t, "http://"+i.AdminAddr().String()+path)
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(url)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode, string(body)
}

func (i *instance) status() admin.Status {
	i.t.Helper()
	code, body := i.page("/api/v1/status")
	require.Equal(i.t, http.StatusOK, code)
	var status admin.Status
	require.NoError(i.t, json.Unmarshal([]byte(body), &status))
	return status
}

// metric is the value of a series, as text; empty if there is none.
func (i *instance) metric(series string) string {
	i.t.Helper()
	_, body := i.page("/metrics")
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), series+" "); ok {
			return value
		}
	}
	return ""
}
