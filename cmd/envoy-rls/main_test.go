package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// asProgram in the environment makes the test binary behave as envoy-rls, for tests that need a process.
const asProgram = "TEST_AS_ENVOY_RLS"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// result is what the program did.
type result struct {
	code        int
	out, errout string
}

// envoyRLS runs the program.
func envoyRLS(stdin string, args ...string) result {
	var out, errout bytes.Buffer
	code := run(args, strings.NewReader(stdin), &out, &errout)
	return result{code, out.String(), errout.String()}
}

var update = flag.Bool("update", false, "write the golden files of testdata anew")

// golden compares got with testdata/NAME.golden.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{
		{},
		{"serve"},
		{"validate"},
		{"test"},
		{"explain"},
		{"simulate"},
		{"health"},
		{"version"},
		{"policies"},
		{"policies", "push"},
		{"policies", "rollback"},
		{"policies", "list"},
		{"policies", "show"},
		{"policies", "diff"},
		{"policies", "status"},
	} {
		name := strings.Join(append([]string{"help"}, args...), "-")
		t.Run(name, func(t *testing.T) {
			got := envoyRLS("", append(args, "--help")...)
			require.Equal(t, exitOK, got.code)
			require.Empty(t, got.errout)
			golden(t, name, got.out)
		})
	}
	os.Args = append(os.Args, "not", "ours")
	t.Cleanup(func() { os.Args = os.Args[:len(os.Args)-2] })
	require.Equal(t, envoyRLS("", "--help"), envoyRLS(""), "without a command: help")
}

func TestUsage(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"unknown command", []string{"srve"}, "Did you mean this?\n\tserve"},
		{"unknown flag", []string{"serve", "--polices", "x"}, "unknown flag: --polices (did you mean \"--policies\"?)"},
		{"a flag like none", []string{"serve", "--zzzzzzzzzz", "x"}, "unknown flag: --zzzzzzzzzz\nSee"},
		{"a word nearly right", []string{"validate", "--format", "jsn", "x"}, `is none of text, json (did you mean "json"?)`},
		{"an argument too many", []string{"serve", "x"}, `unknown command "x"`},
		{"no file", []string{"validate"}, "name the policy files, or a directory of them\nSee envoy-rls validate --help\n"},
		{"nothing to explain", []string{"explain"}, "say which request to explain: --attr NAME=VALUE for each attribute, or --json FILE\nSee envoy-rls explain --help\n"},
		{"two requests to explain", []string{"explain", "--json", "-", "--attr", "a=b"}, "--attr does not go with --json"},
		{"a domain beside JSON", []string{"explain", "--json", "-", "--domain", "edge"}, "--domain does not go with --json"},
		{"an attribute without its flag", []string{"explain", "plan=team"}, "attributes are given as --attr plan=team\nSee envoy-rls explain --help\n"},
		{"a file without its flag", []string{"explain", "policies.yaml"}, "the policy files are given as --policies"},
		{"a flag of explain", []string{"explain", "--atr", "a=b"}, "unknown flag: --atr (did you mean \"--attr\"?)\nSee envoy-rls explain --help\n"},
		{"no value", []string{"explain", "--policies", "testdata/policies.yaml", "--attr", "ip"}, "--attr ip: must be NAME=VALUE"},
		{"no name", []string{"explain", "--policies", "testdata/policies.yaml", "--attr", "=x"}, "--attr =x: must be NAME=VALUE"},
		{"not a number", []string{"serve", "--max-buckets", "many"}, `"many" for "--max-buckets"`},
		{"too few buckets", []string{"serve", "--max-buckets", "3"}, "max-buckets: 3 is less than 16"},
		{"unknown store", []string{"serve", "--store", "disk"}, "is none of memory, redis"},
		{"unknown source", []string{"serve", "--policy-source", "etcd"}, "is none of file, postgres"},
		{"postgres without its file", []string{"serve", "--policy-source", "postgres"}, "policy-dsn-file: no file given"},
		{"a connection string for files", []string{"serve", "--policy-dsn-file", "x"}, "policy-dsn-file: the policy source is file"},
		{"redis flags for memory", []string{"serve", "--redis-url", "redis://:secret@localhost"}, "the store is memory; want store redis"},
		{"redis without a URL", []string{"serve", "--store", "redis"}, "redis: no URL"},
		{"unknown redis mode", []string{"serve", "--store", "redis", "--redis-mode", "ring"}, "is none of auto, standalone, sentinel, cluster"},
		{"unknown level", []string{"serve", "--log-level", "loud"}, "is none of debug, info, warn, error"},
		{"negative delay", []string{"serve", "--drain-delay", "-1s"}, "drain-delay: -1s is negative"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := envoyRLS("", tt.args...)
			require.Equal(t, exitUsage, got.code, got)
			require.Contains(t, got.errout, tt.want)
			require.NotContains(t, got.errout, "secret")
			require.NotContains(t, got.errout, "Usage:", "the help of a command is for those who ask for it")
			require.Empty(t, got.out)
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("ENVOY_RLS_MAX_BUCKETS", "x")
	t.Setenv("ENVOY_RLS_LOG_FORMAT", "xml")
	t.Setenv("ENVOY_RLS_DRAIN_DELAY", "soon")
	got := envoyRLS("", "serve", "--log-format", "json")
	require.Equal(t, exitUsage, got.code)
	require.Contains(t, got.errout, `ENVOY_RLS_MAX_BUCKETS="x"`)
	require.Contains(t, got.errout, `ENVOY_RLS_DRAIN_DELAY="soon"`)
	require.NotContains(t, got.errout, "LOG_FORMAT", "the flag wins")

	t.Setenv("ENVOY_RLS_MAX_BUCKETS", "16")
	t.Setenv("ENVOY_RLS_DRAIN_DELAY", "0s")
	t.Setenv("ENVOY_RLS_POLICIES", "testdata/nowhere.yaml")
	got = envoyRLS("", "serve", "--log-format", "text")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.errout, "testdata/nowhere.yaml: no such file")
}

// TestFailuresInJSON: whoever reads the log as JSON can read why the service did not start.
func TestFailuresInJSON(t *testing.T) {
	t.Setenv("ENVOY_RLS_LOG_FORMAT", "json")
	tests := []struct {
		name, policies, grpc string
		code                 int
		want                 string
	}{
		{"no file", "testdata/nowhere.yaml", "127.0.0.1:0", exitFailed, "no such file"},
		{"faults", "testdata/faulty.yaml", "127.0.0.1:0", exitFaults, "testdata/faulty.yaml:8:21: onStoreFailure cannot be"},
		{"no port", "testdata/policies.yaml", "127.0.0.1:-1", exitFailed, "grpc-addr: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := envoyRLS("", "serve", "--policies", tt.policies, "--grpc-addr", tt.grpc, "--admin-addr", "127.0.0.1:0", "--debug-addr", "")
			require.Equal(t, tt.code, got.code)
			var last struct{ Level, Msg, Error string }
			for line := range strings.Lines(got.errout) {
				require.NoError(t, json.Unmarshal([]byte(line), &last), line)
			}
			require.Equal(t, "ERROR", last.Level)
			require.Equal(t, "service failed", last.Msg)
			require.Contains(t, last.Error, tt.want)
		})
	}
	got := envoyRLS("", "serve", "--max-buckets", "3")
	require.Equal(t, "envoy-rls: max-buckets: 3 is less than 16\nSee envoy-rls serve --help\n", got.errout, "who mistypes a flag sits at a terminal")
}

func TestUnknownVariables(t *testing.T) {
	require.Equal(t, []string{"ENVOY_RLS_POLICY", "ENVOY_RLS_grpc_addr"}, unknownVariables([]string{
		"ENVOY_RLS_grpc_addr=:1", "ENVOY_RLS_POLICY=x", "ENVOY_RLS_POLICIES=x", "ENVOY_RLS=x", "HOME=/", "ENVOY_RLS_GRPC_ADDR=:1",
		"ENVOY_RLS_SERVICE_HOST=10.0.0.1", "ENVOY_RLS_SERVICE_PORT=8081", "ENVOY_RLS_SERVICE_PORT_GRPC=8081",
		"ENVOY_RLS_PORT=tcp://10.0.0.1:8081", "ENVOY_RLS_PORT_8081_TCP=tcp://10.0.0.1:8081", "ENVOY_RLS_PORT_8081_TCP_ADDR=10.0.0.1",
	}, serveFlags), "what Kubernetes sets for a Service named envoy-rls is nobody's mistake")

	t.Setenv("ENVOY_RLS_POLICY", "x")
	got := envoyRLS("", "serve", "--policies", "testdata/nowhere.yaml")
	require.Contains(t, got.errout, `level=WARN msg="environment variables that set no flag" names=`)
	require.Contains(t, got.errout, "ENVOY_RLS_POLICY")
}

// TestEveryFlagOfServeHasAVariable would fail for a flag that fromEnv doesn't know.
func TestEveryFlagOfServeHasAVariable(t *testing.T) {
	values := map[string]string{
		"policy-source": "postgres", "store": "redis", "max-buckets": "77", "drain-delay": "7s", "log-format": "json", "log-level": "error",
		"trace-ratio": "0.5", "redis-url": "redis://a redis://b", "redis-mode": "cluster", "redis-pool-size": "7", "store-timeout": "9ms", "instances": "7",
	}
	cmd := newServe()
	flags := regexp.MustCompile(`(?m)^ +--([a-z-]+)`).FindAllStringSubmatch(cmd.Flags().FlagUsages(), -1)
	require.Len(t, flags, len(serveFlags))
	for _, flag := range flags {
		name := flag[1]
		if values[name] == "" {
			values[name] = "some-" + name
		}
		t.Setenv(envName(name), values[name])
	}
	require.NoError(t, cmd.PreRunE(cmd, nil))
	values["redis-url"] = "2 given" // not shown: there may be passwords in them
	for name, want := range values {
		require.Equal(t, want, cmd.Flags().Lookup(name).Value.String(), name)
	}
}

// TestField_DuplicateID: at start a non-zero exit naming both places.
func TestField_DuplicateID(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("testdata/policies.yaml")
	require.NoError(t, err)
	first, second := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	require.NoError(t, os.WriteFile(first, text, 0o600))
	require.NoError(t, os.WriteFile(second, text, 0o600))
	for _, args := range [][]string{{"validate", dir}, {"validate", first, second}, {"serve", "--policies", dir}} {
		got := envoyRLS("", args...)
		require.Equal(t, exitFaults, got.code, got)
		require.Contains(t, got.errout, second+":3:9")
		require.Contains(t, got.errout, first+":3:9")
		require.Contains(t, got.errout, `"login"`, "all faults at once")
	}
}

func TestServeNeedsItsPort(t *testing.T) {
	got := envoyRLS("", "serve", "--policies", "testdata/policies.yaml", "--grpc-addr", "127.0.0.1:-1", "--admin-addr", "127.0.0.1:0", "--debug-addr", "")
	require.Equal(t, exitFailed, got.code)
	require.Contains(t, got.errout, "grpc-addr: ")
}

func TestVersion(t *testing.T) {
	got := envoyRLS("", "version")
	require.Equal(t, exitOK, got.code)
	require.Regexp(t, `^envoy-rls \S+, commit \S+, go1\S+ \w+/\w+\n$`, got.out)
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := envoyRLS("", "completion", shell)
		require.Equal(t, exitOK, got.code, shell)
		require.Contains(t, got.out, "envoy-rls", shell)
	}
	require.Contains(t, envoyRLS("", "__complete", "serve", "--store", "").out, "memory")
}

func TestMainStaysSmall(t *testing.T) {
	text, err := os.ReadFile("main.go")
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(text, []byte("\n")), 40)
}
