package metrics_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
)

// everything are options with which every metric exists.
func everything() metrics.Options {
	return metrics.Options{
		Store:         func() metrics.Store { return metrics.Store{} },
		Cache:         func() metrics.Cache { return metrics.Cache{} },
		Shares:        func() metrics.Shares { return metrics.Shares{} },
		Shared:        func() metrics.Shared { return metrics.Shared{} },
		ReloadFailing: func() bool { return false },
		Tracing:       func() metrics.Tracing { return metrics.Tracing{} },
		Source:        func() metrics.Source { return metrics.Source{} },
		Security:      metrics.Security{Certificates: func() map[string]time.Time { return nil }},
		Blocked:       func() int { return 0 },
	}
}

// described are the metrics that exist with their labels.
func described(t *testing.T, m *metrics.Metrics) map[string]string {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		m.Registry().Describe(descs)
	}()
	form := regexp.MustCompile(`fqName: "(\w+)".*variableLabels: \{(.*?)\}`)
	found := map[string]string{}
	for d := range descs {
		parts := form.FindStringSubmatch(d.String())
		require.NotNil(t, parts, d)
		if strings.HasPrefix(parts[1], "envoy_rls_") {
			found[parts[1]] = parts[2]
		}
	}
	require.NotEmpty(t, found)
	return found
}

// documented are those of the reference.
func documented(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	found := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(envoy_rls_\\w+)` \\| (.*?) ?\\| \\S.* \\|$").FindAllStringSubmatch(string(text), -1) {
		var labels []string
		for label := range strings.SplitSeq(row[2], ";") {
			name, _, _ := strings.Cut(label, ":") // its values come after that
			labels = append(labels, strings.ReplaceAll(strings.TrimSpace(name), ", ", ","))
		}
		require.NotContains(t, found, row[1], "twice")
		found[row[1]] = strings.Join(labels, ",")
	}
	return found
}

// TestReference: the document lists exactly the metrics that exist, with their labels in order.
func TestReference(t *testing.T) {
	require.Equal(t, described(t, metrics.New(everything())), documented(t))
}
