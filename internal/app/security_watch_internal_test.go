package app

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A panic while answering is told by its place, not by its value, and ends nothing but the answer.
func TestPanicsTellNoSecrets(t *testing.T) {
	const secret = "marker-in-a-panic"
	for name, value := range map[string]any{"text": secret, "error": errors.New(secret), "struct": struct{ s string }{secret}, "nil": nil} {
		t.Run(name, func(t *testing.T) {
			out := &lockedBuffer{}
			a := &App{log: slog.New(slog.NewTextHandler(out, nil))}
			server := httptest.NewUnstartedServer(a.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/panic" {
					panic(value)
				}
			})))
			server.Config.ErrorLog = a.httpLog(useAdmin)
			server.Start()
			defer server.Close()
			_, err := server.Client().Get(server.URL + "/panic")
			require.Error(t, err)
			answer, err := server.Client().Get(server.URL + "/")
			require.NoError(t, err)
			require.NoError(t, answer.Body.Close())
			require.Contains(t, out.String(), "panic while answering")
			require.Contains(t, out.String(), "TestPanicsTellNoSecrets", "the stack")
			require.NotContains(t, out.String(), secret)
		})
	}
}

// What net/http says goes to the service's log, a line a second at most; a probe that only connects is no failed handshake.
func TestLinesOfHTTPServers(t *testing.T) {
	out := &bytes.Buffer{}
	a := &App{log: slog.New(slog.NewTextHandler(out, nil))}
	var failed []string
	lines := &httpLines{failed: func(from string, why error) { failed = append(failed, from+" "+why.Error()) }, other: a.sparing()}
	for _, line := range []string{
		"http: TLS handshake error from 192.0.2.1:4711: remote error: tls: bad certificate\n",
		"http: TLS handshake error from [2001:db8::1]:4711: EOF\n",
		"http: response.WriteHeader on hijacked connection\n",
		"http: response.WriteHeader on hijacked connection\n",
	} {
		n, err := lines.Write([]byte(line))
		require.NoError(t, err)
		require.Equal(t, len(line), n)
	}
	require.Equal(t, []string{"192.0.2.1:4711 remote error: tls: bad certificate"}, failed)
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	require.Contains(t, out.String(), "hijacked")
}
