package main

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
	"github.com/envoy-rls/envoy-rls/internal/buckets"
	"github.com/envoy-rls/envoy-rls/internal/testcerts"
	"github.com/envoy-rls/envoy-rls/internal/tlsfiles"
	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// bucketService serves what the command asks.
func bucketService(t *testing.T) (addr string) {
	t.Helper()
	set, err := policy.Load("testdata/policies.yaml")
	require.NoError(t, err)
	store := memorybackend.New(memorybackend.Options{})
	server := httptest.NewServer(buckets.Handler(buckets.Options{
		Policies: func() *policy.Set { return set }, Store: store, Blocks: blocklist.New(store),
		Audit: buckets.NewAudit("one", slog.New(slog.DiscardHandler), nil), OnAttempt: func(buckets.Action, string) {},
		Authorize: func(r *http.Request) (string, error) {
			if r.Header.Get("Authorization") != "Bearer secret-token" {
				return "", errors.New("want a token")
			}
			return "token:alice", nil
		},
	}))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestBuckets(t *testing.T) {
	addr := bucketService(t)
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("# mine\nalice secret-token\n"), 0o600))
	ask := func(action string, args ...string) result {
		args = append([]string{"buckets", action, "--addr", addr}, args...)
		if action != "show" {
			args = append(args, "--token-file", token)
		}
		return envoyRLS("", args...)
	}
	bucket := []string{"--policy", "login", "--attr", "ip=203.0.113.7", "--attr", "username=alice"}
	with := func(more ...string) []string { return append(append([]string{}, bucket...), more...) }

	shown := ask("show", bucket...)
	require.Equal(t, exitOK, shown.code, shown.errout)
	require.Regexp(t, `^login of #[0-9a-f]{12} \(limit (\d+)\)\nnow     \d+ left\n$`, shown.out)
	require.NotContains(t, shown.out, "alice")
	got := ask("set", with("--remaining", "1", "--reason", "test")...)
	require.Equal(t, exitOK, got.code, got.errout)
	require.Contains(t, got.out, "after   1 left\nknown   to this instance\n")
	require.Contains(t, ask("refund", with("--cost", "2")...).out, "before  1 left\nafter   3 left\n")
	got = ask("block", with("--for", "1h", "--reason", "scraping", "--format", "json")...)
	require.Equal(t, exitOK, got.code, got.errout)
	var report buckets.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report))
	require.Equal(t, "scraping", report.After.Block.Reason)
	require.Contains(t, ask("show", bucket...).out, "by token:alice: scraping")
	require.Contains(t, ask("unblock", "--id", report.After.Block.ID).out, "before  3 left, blocked until")
	require.Contains(t, ask("block", with("--until", "2020-01-01T00:00:00Z", "--reason", "x")...).errout, "is over")
	require.Contains(t, ask("reset", bucket...).out, "after")
}

func TestBucketsFaults(t *testing.T) {
	addr := bucketService(t)
	empty := filepath.Join(t.TempDir(), "empty")
	require.NoError(t, os.WriteFile(empty, []byte("# nothing\n"), 0o600))
	tests := []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no bucket", []string{"show"}, exitUsage, "say which bucket"},
		{"no value", []string{"show", "--policy", "login", "--attr", "ip"}, exitUsage, "must be NAME=VALUE"},
		{"twice", []string{"show", "--policy", "login", "--attr", "ip=1", "--attr", "ip=2"}, exitUsage, "given twice"},
		{"no time", []string{"block", "--policy", "login", "--until", "tomorrow"}, exitUsage, "want a time such as"},
		{"an argument", []string{"reset", "ip=203.0.113.7"}, exitUsage, "--attr ip=203.0.113.7"},
		{"another action's flag", []string{"reset", "--cost", "3"}, exitUsage, "unknown flag: --cost"},
		{"no token", []string{"reset", "--policy", "edge-ip", "--attr", "ip=203.0.113.7"}, exitFaults, "want a token"},
		{"an empty token file", []string{"reset", "--policy", "edge-ip", "--token-file", empty}, exitUsage, "there is no token in it"},
		{"no policy of that name", []string{"show", "--policy", "lgin"}, exitFaults, `did you mean "login"`},
		{"no certificate", []string{"show", "--policy", "login", "--ca-file", empty}, exitUsage, "none in"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := envoyRLS("", append(append([]string{"buckets"}, tt.args...), "--addr", addr)...)
			require.Equal(t, tt.code, got.code, got.errout)
			require.Contains(t, got.errout, tt.want)
			require.Empty(t, got.out)
		})
	}
	require.Equal(t, exitFailed, envoyRLS("", "buckets", "show", "--policy", "login", "--addr", "127.0.0.1:1").code)
}

// TestBucketsWithACertificate: who may change things is known by a certificate, without any token.
func TestBucketsWithACertificate(t *testing.T) {
	ca, err := testcerts.New("ca")
	require.NoError(t, err)
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.WriteFile(file("ca.crt"), ca.PEM, 0o600))
	for _, name := range []string{"server", "alice"} {
		pair, err := ca.Issue(testcerts.Leaf{Name: name})
		require.NoError(t, err)
		require.NoError(t, pair.Write(file(name+".crt"), file(name+".key")))
	}
	files, err := tlsfiles.New(tlsfiles.Options{CAFile: file("ca.crt"), CertFile: file("server.crt"), KeyFile: file("server.key")})
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		adminhttp.Fail(w, http.StatusForbidden, "you are one of "+strings.Join(r.TLS.PeerCertificates[0].DNSNames, ", "))
	}))
	server.TLS = files.Client("")
	server.TLS.ClientCAs, server.TLS.ClientAuth = server.TLS.RootCAs, tls.RequireAndVerifyClientCert
	server.StartTLS()
	t.Cleanup(server.Close)
	ask := func(more ...string) result {
		args := []string{"buckets", "show", "--addr", server.URL, "--policy", "login", "--attr", "ip=203.0.113.7", "--attr", "username=alice", "--ca-file", file("ca.crt")}
		return envoyRLS("", append(args, more...)...)
	}
	got := ask("--cert-file", file("alice.crt"), "--key-file", file("alice.key"))
	require.Equal(t, exitFaults, got.code, got.errout)
	require.Contains(t, got.errout, ", alice")
	require.Equal(t, exitFailed, ask().code, "without a certificate nobody is heard")
	require.Equal(t, exitUsage, ask("--cert-file", file("alice.crt")).code, "a certificate without a key")
}
