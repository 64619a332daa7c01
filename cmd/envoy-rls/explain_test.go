package main

import (
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/explain"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func TestExplain(t *testing.T) {
	tests := []struct {
		name  string
		args  []string
		stdin string
	}{
		{"login", []string{"--attr", "route=POST /auth/login", "--attr", "ip=203.0.113.7", "--attr", "username=alice"}, ""},
		{"override", []string{"--domain", "edge", "--attr", "plan=free", "--attr", "x-api-key=secret1", "--attr", "tenant=acme", "--cost", "150"}, ""},
		{"never", []string{"--attr", "plan=free", "--attr", "apiKey=k1", "--attr", "tenant=acme", "--cost", "21"}, ""},
		{"huge-cost", []string{"--attr", "ip=203.0.113.7", "--cost", "18446744073709551615"}, ""},
		{"peek", []string{"--attr", "ip=203.0.113.7", "--cost", "0"}, ""},
		{"missing-key", []string{"--attr", "plan=free", "--attr", "apiKey=k1", "--attr", "ip=unknown", "--attr", "colour=red"}, ""},
		{"shadow", []string{"--attr", "method=GET", "--attr", "path=//v1/./items?x=1", "--attr", "plan=pro", "--attr", "tenant=acme"}, ""},
		{"several-values", []string{"--attr", "ip=203.0.113.7", "--attr", "ip=203.0.113.8"}, ""},
		{"other-domain", []string{"--domain", "core", "--attr", "ip=203.0.113.7"}, ""},
		{"hash", []string{"--attr", "plan=free", "--attr", "apiKey=ak_5b11618c2e440278", "--attr", "tenant=acme"}, ""},
		{"hashed", []string{"--attr", "plan=free", "--attr", "apiKey=ak_5b11618c2e440278", "--attr", "tenant=acme", "--hashed"}, ""},
		{"expired", []string{"--policies", "testdata/expired.yaml", "--attr", "tenant=acme"}, ""},
		{"json", []string{"--json", "-"}, `{"domain": "edge", "hitsAddend": 2, "descriptors": [
			{"entries": [{"key": "remote_address", "value": "2001:db8:1:2::9"}]},
			{"entries": [{"key": "api_key", "value": "k1"}, {"key": "plan", "value": "free"}], "hitsAddend": 0}]}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := envoyRLS(tt.stdin, append([]string{"explain", "--policies", "testdata/policies.yaml"}, tt.args...)...)
			require.Equal(t, exitOK, got.code, got.errout)
			require.Empty(t, got.errout)
			require.NotContains(t, got.out, "secret1", "API keys are never shown")
			golden(t, "explain-"+tt.name, got.out)
		})
	}
}

func TestExplainFaults(t *testing.T) {
	tests := []struct {
		name  string
		args  []string
		stdin string
		want  string
	}{
		{"policies", []string{"--policies", "testdata/faulty.yaml", "--attr", "ip=::1"}, "", "testdata/faulty.yaml:6:5"},
		{"no file", []string{"--policies", "testdata/policies.yaml", "--json", "testdata/nothing.json"}, "", "no such file"},
		{"no JSON", []string{"--policies", "testdata/policies.yaml", "--json", "-"}, "ip: 1", "standard input:1:1: not a RateLimitRequest"},
		{
			"unknown field",
			[]string{"--policies", "testdata/policies.yaml", "--json", "-"},
			`{"domian": "edge"}`,
			"standard input:1:2: not a RateLimitRequest: unknown field \"domian\" (did you mean \"domain\"?)\n{\"domian\": \"edge\"}\n ^\n",
		},
		{
			"a fault beside a secret",
			[]string{"--policies", "testdata/policies.yaml", "--json", "-"},
			`{"descriptors": [{"entries": [{"key": "api_key", "value": "pass\"wörd", "kye": 1}]}]}`,
			"\n{\"descriptors\": [{\"entries\": [{\"key\": \"api_key\", \"value\": \"**********\", \"kye\": 1}]}]}\n" + strings.Repeat(" ", 72) + "^\n",
		},
		{"no descriptors", []string{"--policies", "testdata/policies.yaml", "--json", "-"}, `{"domain": "edge"}`, "needs a domain and descriptors"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := envoyRLS(tt.stdin, append([]string{"explain"}, tt.args...)...)
			require.Equal(t, exitFaults, got.code, got)
			require.Contains(t, got.errout, tt.want)
			require.Empty(t, got.out)
		})
	}
}

func TestExplainAddr(t *testing.T) {
	set, err := policy.Load("testdata/policies.yaml")
	require.NoError(t, err)
	store := memorybackend.New(memorybackend.Options{MaxBuckets: 1 << 10, Now: func() int64 { return 0 }})
	service := httptest.NewServer(explain.Handler(func() *policy.Set { return set }, store))
	defer service.Close()

	args := []string{"explain", "--addr", service.URL, "--attr", "plan=free", "--attr", "apiKey=k1", "--attr", "tenant=acme", "--attr", "ip=203.0.113.7"}
	got := envoyRLS("", args...)
	require.Equal(t, exitOK, got.code, got)
	golden(t, "explain-addr", got.out)

	programs := envoyRLS("", append(args, "--format", "json")...)
	require.Equal(t, exitOK, programs.code, programs)
	var report explain.Report
	require.NoError(t, json.Unmarshal([]byte(programs.out), &report))
	require.Equal(t, got.out, report.String())
	require.True(t, report.Answer.Live)

	usage := envoyRLS("", append(args, "--policies", "testdata/policies.yaml")...)
	require.Equal(t, exitUsage, usage.code)
	require.Contains(t, usage.errout, "--policies does not go with --addr")

	service.Close()
	gone := envoyRLS("", args...)
	require.Equal(t, exitFailed, gone.code)
	require.Contains(t, gone.errout, "connection refused")
}

func TestExplainJSON(t *testing.T) {
	got := envoyRLS("", "explain", "--policies", "testdata/policies.yaml", "--attr", "plan=free", "--attr", "apiKey=k1", "--format", "json")
	require.Equal(t, exitOK, got.code, got)
	var report explain.Report
	require.NoError(t, json.Unmarshal([]byte(got.out), &report))
	require.False(t, report.Answer.Live)
	require.False(t, report.Answer.Allowed)
	require.Equal(t, "missing-key", report.Answer.Checks[0].Source)
}
