package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/internal/app"
)

const (
	judgedPolicies = `
domain: bench
policies:
  - {id: key, match: {plan: "*"}, key: [apiKey], algorithm: token-bucket, capacity: 20, refillPerSecond: 100, onStoreFailure: open}
  - {id: tenant, key: [tenant], algorithm: sliding-log, limit: 50, window: 1s, onStoreFailure: open}
`
	judgedScenario = `
keys: { count: 4 }
calls:
  - { descriptors: [{ plan: free, api_key: '{run}-{key}' }], weight: 2 }
  - { descriptors: [{ plan: free, api_key: '{run}-{key}' }, { tenant: '{run}-{key%2}' }] }
  - { descriptors: [{ nobody: counts }] }
workers: 12
connections: 2
`
)

// startJudged starts a service and returns its address, the path of a scenario and that of its policies.
func startJudged(t *testing.T) (addr, scenario, policies string) {
	t.Helper()
	dir := t.TempDir()
	scenario, policies = filepath.Join(dir, "scenario.yaml"), filepath.Join(dir, "policies.yaml")
	require.NoError(t, os.WriteFile(scenario, []byte(judgedScenario), 0o600))
	require.NoError(t, os.WriteFile(policies, []byte(judgedPolicies), 0o600))
	a, err := app.New(app.Options{Policies: policies, GRPCAddr: "127.0.0.1:0", AdminAddr: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, a.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, a.Stop(context.Background())) })
	return a.GRPCAddr().String(), scenario, policies
}

// TestAccuracyRun: what a service says is recorded and judged by its policies; by others it is not what they allow.
func TestAccuracyRun(t *testing.T) {
	addr, scenario, policies := startJudged(t)
	record := filepath.Join(t.TempDir(), "record.jsonl")
	run := func(policies string, more ...string) result {
		args := []string{"accuracy", "run", "--addr", addr, "--addr", addr, "--scenario", scenario, "--policies", policies, "--fresh", "--format", "json", "--duration", "1s"}
		return envoyRLS("", append(args, more...)...)
	}
	got := run(policies, "--record", record, "--rate", "1500/s")
	require.Equal(t, exitOK, got.code, got)
	var v accuracy.Verdict
	require.NoError(t, json.Unmarshal([]byte(got.out), &v))
	require.Equal(t, 6, v.Buckets)
	require.Greater(t, v.Denials, 100)
	require.Greater(t, v.Readings, 300)
	require.Greater(t, v.Fullest.Admitted, v.Fullest.Bound/2)

	got = envoyRLS("", "accuracy", "check", record, record)
	require.Equal(t, exitFaults, got.code, "twice the same calls are too many")
	require.Contains(t, got.out, "too much admitted")
	got = envoyRLS("", "accuracy", "check", record)
	require.Equal(t, exitOK, got.code, got)
	require.Contains(t, got.out, "ok: nothing that a store which keeps its limits could not have done")

	for _, test := range []struct{ from, to, want string }{
		{"capacity: 20", "capacity: 10", "too much admitted"},
		{"refillPerSecond: 100", "refillPerSecond: 1000", "wrongly denied"},
		{"limit: 50", "limit: 40", "too much admitted"},
	} {
		other := filepath.Join(t.TempDir(), "other.yaml")
		require.NoError(t, os.WriteFile(other, []byte(strings.Replace(judgedPolicies, test.from, test.to, 1)), 0o600))
		got := run(other)
		require.Equal(t, exitFaults, got.code, test)
		require.Contains(t, got.out, test.want, test)
	}
}

func TestAccuracyFaults(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.jsonl")
	require.NoError(t, os.WriteFile(bad, []byte("{}"), 0o600))
	for name, test := range map[string]struct {
		args string
		code int
		want string
	}{
		"nothing to check": {"check", exitUsage, "requires at least 1 arg"},
		"no such file":     {"check " + filepath.Join(dir, "none"), exitFaults, "no such file"},
		"no record":        {"check " + bad, exitFaults, bad + ": line 1: not a record of version 1"},
		"drift":            {"check --drift 2 " + bad, exitUsage, "--drift must be"},
		"nobody to call":   {"run", exitUsage, "--addr HOST:PORT"},
		"a share":          {"run --addr a:1 --rate 50%", exitUsage, "want calls a second"},
		"no time":          {"run --addr a:1 --duration 0s", exitUsage, "above zero"},
		"no scenario":      {"run --addr a:1 --scenario acuracy", exitFaults, `did you mean "accuracy"?`},
		"no policies":      {"run --addr a:1 --policies " + filepath.Join(dir, "none"), exitFaults, "none"},
		"nobody answers":   {"run --addr 127.0.0.1:1 --tls --ca-file " + bad, exitFailed, "holds no certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			got := envoyRLS("", append([]string{"accuracy"}, strings.Fields(test.args)...)...)
			require.Equal(t, test.code, got.code, got)
			require.Contains(t, got.errout, test.want)
		})
	}
}
