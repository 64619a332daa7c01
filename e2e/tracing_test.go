package e2e_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/tracing/tracingtest"
)

// tracingYAML is what docs/tracing.md has Envoy's configuration say, and where.
func tracingYAML(t *testing.T) (manager, cluster string) {
	t.Helper()
	text, err := os.ReadFile("../docs/tracing.md")
	require.NoError(t, err)
	blocks := strings.Split(string(text), "```")
	for i := 1; i < len(blocks); i += 2 {
		lang, body, _ := strings.Cut(blocks[i], "\n")
		switch {
		case lang == "text" && strings.HasPrefix(body, "tracing:"):
			manager = body
		case lang == "text" && strings.HasPrefix(body, "- name: otel"):
			cluster = body
		}
	}
	require.NotEmpty(t, manager)
	require.NotEmpty(t, cluster)
	return manager, cluster
}

func indent(text string, by int) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.Repeat(" ", by) + line)
	}
	return b.String()
}

// TestTraceThroughEnvoy: the spans of the service stand in the trace of the request, below Envoy's own, with what docs/tracing.md says.
func TestTraceThroughEnvoy(t *testing.T) {
	collector := tracingtest.Start(t)
	shipped, err := os.ReadFile("../envoy/envoy.yaml")
	require.NoError(t, err)
	manager, cluster := tracingYAML(t)
	const sampling = "random_sampling: {value: 1}"
	require.Contains(t, manager, sampling)
	manager = strings.Replace(manager, sampling, "random_sampling: {value: 100}", 1)
	const address = "{address: collector, port_value: 4317}"
	require.Contains(t, cluster, address)
	cluster = strings.Replace(cluster, address, socketAddress(strings.TrimPrefix(collector.URL, "http://")), 1)
	config := string(shipped)
	for at, insert := range map[string]string{"          stat_prefix: edge\n": indent(manager, 10), "  clusters:\n": indent(cluster, 2)} {
		require.Contains(t, config, at)
		config = strings.Replace(config, at, at+insert, 1)
	}
	path := filepath.Join(t.TempDir(), "envoy.yaml")
	require.NoError(t, os.WriteFile(path, []byte(config), 0o600))
	lab := newLab(t, setup{
		policies: writePolicies(t, "domain: edge\npolicies:\n"+
			"  - {id: once, key: [apiKey], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: local}\n"),
		envoyConfig: path,
		args:        []string{"--otlp-endpoint", collector.URL, "--trace-ratio", "0"},
	})
	const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	client := harness.Client{Addr: lab.Options.Listen}
	defer client.Close()
	request := harness.Request{Method: "GET", Target: "/x", Header: []string{
		"x-api-key: secret-key", "traceparent: 00-" + traceID + "-00f067aa0ba902b7-01",
	}}
	for _, status := range []int{200, 429} {
		answer, err := client.Do(t.Context(), request)
		require.NoError(t, err)
		require.Equal(t, status, answer.Status)
	}

	ours := func(s tracingtest.Span) bool {
		return s.Resource["service.name"] == "envoy-rls" && s.TraceID == traceID
	}
	spans := collector.Wait(t, 4, ours)
	require.Len(t, spans, 4, "a call and its store call, twice")
	envoys := collector.Wait(t, 4, func(s tracingtest.Span) bool { return !ours(s) && s.TraceID == traceID })
	ids := map[string]bool{}
	for _, s := range append(envoys, spans...) {
		ids[s.ID] = true
	}
	var outcomes []any
	for _, s := range spans {
		require.True(t, ids[s.Parent], "%s hangs in the air: %+v", s.Name, s)
		if outcome := s.Attributes["ratelimit.outcome"]; outcome != nil {
			outcomes = append(outcomes, outcome)
		}
	}
	require.ElementsMatch(t, []any{"allowed", "denied"}, outcomes)
	require.NotContains(t, fmt.Sprint(spans), "secret", "a key")
}
