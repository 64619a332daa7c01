package page_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// patience bounds every wait for something that has to happen. A slow machine needs a part of it, a fault all of it.
const patience = time.Minute

// token is that of somebody who may change things.
const token = "0123456789abcdef0123456789abcdef"

// lab is two instances of the service on one Redis, and what the script in the browser asks to be done to them.
type lab struct {
	t         *testing.T
	redis     *redistest.Server
	policies  string // the file
	instances []*harness.Instance
	control   *httptest.Server
}

// newLab starts a lab that ends with the test.
func newLab(t *testing.T, policies string, args ...string) *lab {
	t.Helper()
	l := &lab{t: t, redis: redistest.StartStandalone(t), policies: filepath.Join(t.TempDir(), "policies.yaml")}
	require.NoError(t, os.WriteFile(l.policies, []byte(policies), 0o600))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tokens := filepath.Join(t.TempDir(), "tokens")
	require.NoError(t, os.WriteFile(tokens, []byte("alice "+token+"\n"), 0o600))
	args = append([]string{
		"serve", "--policies", l.policies, "--store", "redis", "--redis-url", l.redis.URL(), "--store-timeout", "1s", "--drain-delay", "0s",
		"--admin-token-file", tokens,
	}, args...)
	for range 2 {
		i, err := harness.StartInstance(ctx, programs.service, args, nil)
		require.NoError(t, err)
		t.Cleanup(i.Stop)
		l.instances = append(l.instances, i)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /call", l.call)
	mux.HandleFunc("POST /policies", l.writePolicies)
	mux.HandleFunc("POST /redis/pause", l.do(l.redis.Pause))
	mux.HandleFunc("POST /redis/resume", l.do(l.redis.Resume))
	mux.HandleFunc("POST /stop", l.do(func() error {
		l.instances[0].Process.Stop(patience)
		return nil
	}))
	l.control = httptest.NewServer(mux)
	t.Cleanup(l.control.Close)
	return l
}

// calls are what the script asks for: the same request several times.
type calls struct {
	Instance int           `json:"instance"`
	Times    int           `json:"times"`
	Domain   string        `json:"domain"`
	Entries  [][][2]string `json:"entries"` // of each descriptor
}

func (l *lab) call(w http.ResponseWriter, r *http.Request) {
	var c calls
	if err := json.NewDecoder(r.Body).Decode(&c); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	req := &rls.RateLimitRequest{Domain: c.Domain}
	for _, entries := range c.Entries {
		d := &ratelimit.RateLimitDescriptor{}
		for _, e := range entries {
			d.Entries = append(d.Entries, &ratelimit.RateLimitDescriptor_Entry{Key: e[0], Value: e[1]})
		}
		req.Descriptors = append(req.Descriptors, d)
	}
	var answer struct{ Allowed, Denied int }
	for n := range c.Times {
		a, err := l.instances[c.Instance].Ask(r.Context(), n, req)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		if a.Allowed {
			answer.Allowed++
		} else {
			answer.Denied++
		}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

func (l *lab) do(what func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := what(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// writePolicies puts other text in the place of the policies.
func (l *lab) writePolicies(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if err := os.WriteFile(l.policies, b.Bytes(), 0o600); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// browse runs a part of the script in testdata, in a browser of its own. It fails the test if the script does.
func (l *lab) browse(part string, env ...string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 3*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "testdata/page.mjs", part)
	settings := map[string]any{
		"policies": policies, "token": token, "driver": programs.driver, "profile": l.t.TempDir(), "control": l.control.URL,
		"pages": []string{"http://" + l.instances[0].Admin + "/", "http://" + l.instances[1].Admin + "/"},
	}
	text, err := json.Marshal(settings)
	require.NoError(l.t, err)
	cmd.Env = append(append(os.Environ(), "PAGE_TEST="+string(text)), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		l.t.Fatalf("%v\n%s", err, out)
	}
	fmt.Fprintf(l.t.Output(), "%s", out)
}
