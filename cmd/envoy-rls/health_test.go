package main

import (
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHealth(t *testing.T) {
	answers := map[string]http.HandlerFunc{
		"ready": func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ready\n")) },
		"not ready: 503 Service Unavailable: stopping": func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "stopping", http.StatusServiceUnavailable)
		},
		"deadline exceeded": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
	}
	for want, answer := range answers {
		t.Run(want, func(t *testing.T) {
			mux := http.NewServeMux()
			mux.HandleFunc("GET /readyz", answer)
			service := httptest.NewServer(mux)
			defer service.Close()
			got := envoyRLS("", "health", "--addr", service.URL, "--timeout", "200ms")
			if want == "ready" {
				require.Equal(t, exitOK, got.code, got)
				require.Equal(t, "ready\n", got.out)
				return
			}
			require.Equal(t, exitFailed, got.code, got)
			require.Contains(t, got.errout, want)
			require.Empty(t, got.out)
		})
	}

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	got := envoyRLS("", "health", "--addr", gone.Listener.Addr().String())
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.errout, "connection refused")
}

// A service with a certificate of one's own authority is known by it.
func TestHealthOverTLS(t *testing.T) {
	service := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ready\n")) }))
	defer service.Close()
	service.Config.ErrorLog = log.New(io.Discard, "", 0)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: service.Certificate().Raw}), 0o600))
	for want, args := range map[string][]string{
		"":                            {"--ca-file", ca},
		"signed by unknown authority": {},
		"not elsewhere":               {"--ca-file", ca, "--server-name", "elsewhere"},
		"certificates to trust: open": {"--ca-file", ca + ".none"},
	} {
		got := envoyRLS("", append([]string{"health", "--addr", service.URL}, args...)...)
		require.Contains(t, got.errout, want)
		require.Equal(t, want == "", got.code == exitOK, got)
	}
	got := envoyRLS("", "health", "--addr", service.URL, "--ca-file", ca, "--server-name", "example.com")
	require.Equal(t, exitOK, got.code, got)
}
