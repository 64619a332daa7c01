package main

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/floor"
	"github.com/envoy-rls/envoy-rls/internal/bench/report"
)

func TestBenchLists(t *testing.T) {
	got := envoyRLS("", "bench", "--list")
	require.Equal(t, exitOK, got.code, got)
	require.Len(t, strings.Split(strings.TrimSpace(got.out), "\n"), len(bench.Names()))
	require.Contains(t, got.out, "one-policy       one token bucket for each of 100,000 API keys")

	got = envoyRLS("", "bench", "--show", "one-policy")
	require.Equal(t, exitOK, got.code, got)
	require.Contains(t, got.out, "id: daily")
}

func TestBenchFaults(t *testing.T) {
	dir := t.TempDir()
	bad, plain := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "plain.yaml")
	require.NoError(t, os.WriteFile(bad, []byte("calls: [{descriptors: [{a: b}]}]\nkeyz: 3\n"), 0o600))
	require.NoError(t, os.WriteFile(plain, []byte("calls: [{descriptors: [{a: b}]}]\n"), 0o600))
	tests := map[string]struct {
		args string
		code int
		want string
	}{
		"nothing to load":   {"", exitUsage, "say what to load"},
		"two things":        {"--addr a:1 --lab memory", exitUsage, "say what to load"},
		"unknown lab":       {"--lab disk", exitUsage, "memory"},
		"unknown scenario":  {"--lab memory --scenario one-polici", exitFaults, `did you mean "one-policy"?`},
		"unknown to show":   {"--show one-polici", exitUsage, `did you mean "one-policy"?`},
		"faulty scenario":   {"--lab memory --scenario " + bad, exitFaults, bad + `:2:1: a scenario has no field "keyz" (did you mean "keys"?)`},
		"without policies":  {"--lab memory --scenario " + plain, exitUsage, "has no policies to start a service with"},
		"no cluster":        {"--lab redis --scenario shard-killed", exitUsage, "kills a shard, which takes --lab cluster"},
		"rate":              {"--lab memory --rate fast", exitUsage, `"fast" is no rate`},
		"peak":              {"--lab memory --peak high", exitUsage, "want calls a second, or measured"},
		"rounds":            {"--lab memory --rounds 0", exitUsage, "--rounds 0: want 1 to"},
		"no worker":         {"--lab memory --workers 0", exitUsage, "--workers 0: want 1 to"},
		"many workers":      {"--lab memory --workers 1000000000", exitUsage, "want 1 to 10000"},
		"no connection":     {"--lab memory --connections 0", exitUsage, "--connections 0: want 1 to"},
		"no key":            {"--lab memory --keys 0", exitUsage, "--keys 0: want 1 to"},
		"too many keys":     {"--lab memory --scenario hot-key --keys 18446744073709551615", exitUsage, "want 1 to 100000000"},
		"no time":           {"--lab memory --duration 0s", exitUsage, "must be above zero"},
		"a year":            {"--lab memory --duration 9000h", exitUsage, "at most a day"},
		"time back":         {"--lab memory --warm-up -5s", exitUsage, "--warm-up must be"},
		"pid of a lab":      {"--lab memory --pid 1", exitUsage, "--pid goes with --addr"},
		"a lab's Redis":     {"--lab redis --redis 127.0.0.1:1", exitUsage, "--redis goes with --addr"},
		"negative pid":      {"--addr 127.0.0.1:1 --pid -1", exitUsage, "no such process"},
		"floor of another":  {"--addr 127.0.0.1:1 --no-floor", exitUsage, "--no-floor goes with --lab"},
		"no folder":         {"--lab memory --json " + filepath.Join(dir, "none", "x.json"), exitUsage, "no such file"},
		"a file as folder":  {"--lab memory --markdown " + filepath.Join(bad, "x.md"), exitUsage, "no folder"},
		"TLS without TLS":   {"--addr 127.0.0.1:1 --ca-file x", exitFailed, "go with --tls"},
		"no such authority": {"--addr 127.0.0.1:1 --tls --ca-file " + filepath.Join(dir, "ca"), exitFailed, "no such file"},
		"no certificate":    {"--addr 127.0.0.1:1 --tls --ca-file " + bad, exitFailed, "holds no certificate"},
		"no Redis":          {"--addr 127.0.0.1:1 --redis 127.0.0.1:1", exitFailed, "127.0.0.1:1"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := envoyRLS("", append([]string{"bench"}, strings.Fields(test.args)...)...)
			require.Equal(t, test.code, got.code, got)
			require.Contains(t, got.errout, test.want)
		})
	}
}

// What is published says how it was made, but no password.
func TestBenchPublishesNoPassword(t *testing.T) {
	for arg, want := range map[string]string{
		"--lab": "--lab", "mine.yaml": "mine.yaml",
		"redis://:secret@h:1":                          "redis://***@h:1",
		"--redis=rediss://u:secret@h:1/0,redis://h:2":  "--redis=rediss://***@h:1/0,redis://h:2",
		"--serve-arg=--redis-url=redis://u:secret@h:1": "--serve-arg=--redis-url=redis://***@h:1",
		"redis://u:se%cret@h:1":                        "redis://***",
		"redis://h:1?password=secret":                  "redis://h:1?***",
	} {
		require.Equal(t, "envoy-rls bench "+want, commandLine([]string{"/bin/envoy-rls", "bench", arg}))
	}
	got := envoyRLS("", "bench", "--addr", "127.0.0.1:1", "--redis", "redis://u:secret@127.0.0.1:1")
	require.Equal(t, exitFailed, got.code, got)
	require.NotContains(t, got.out+got.errout, "secret")
}

// A server that runs is measured, whoever made it, and everything is written that was asked for.
func TestBench(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- floor.Serve(t.Context(), l) }() // ends before the test does: its context is done first
	t.Cleanup(func() { require.NoError(t, <-served) })

	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	got := envoyRLS("", "bench", "--addr", l.Addr().String(), "--scenario", "one-policy", "--rate", "50%", "--rate", "closed", "--peak", "measured",
		"--workers", "4", "--connections", "2", "--duration", "100ms", "--warm-up", "0s", "--keys", "100",
		"--json", path("all.json"), "--markdown", path("table.md"), "--svg", path("plots"))
	require.Equal(t, exitOK, got.code, got)
	require.Contains(t, got.errout, "one-policy, 50%, service\n")

	var r report.Report
	text, err := os.ReadFile(path("all.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r))
	require.Len(t, r.Rows, 2)
	require.Positive(t, r.Rows[0].Wanted)
	require.Positive(t, r.Rows[1].Calls)
	table, err := os.ReadFile(path("table.md"))
	require.NoError(t, err)
	require.Equal(t, got.out, string(table))
	plots, err := filepath.Glob(path("plots/*.svg"))
	require.NoError(t, err)
	require.NotEmpty(t, plots)

	got = envoyRLS("", "bench", "--addr", l.Addr().String(), "--scenario", "accuracy", "--duration", "50ms", "--workers", "1")
	require.Equal(t, exitFaults, got.code, got)
	require.Contains(t, got.out, "NOT VALID: accuracy, closed, service: ")
}
