package app_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// notScraped are metrics of dashboard and alerts that the instances of the test below have no cause to show.
var notScraped = map[string]string{
	"envoy_rls_policy_source_up":                     "policies come from a file",
	"envoy_rls_certificate_expiry_timestamp_seconds": "no TLS",
	"envoy_rls_certificate_reload_failing":           "no TLS",
	"envoy_rls_tls_handshake_failures_total":         "no TLS",
	"envoy_rls_admin_tokens_failing":                 "no token file",
	"envoy_rls_admin_refused_total":                  "nobody was refused",
	"envoy_rls_unanswered_buckets_total":             "Redis answers",
}

// TestDashboardAndAlertsAskForWhatIsScraped reads what services of both kinds show to Prometheus.
func TestDashboardAndAlertsAskForWhatIsScraped(t *testing.T) {
	policies := strings.Replace(watchedPolicies, "onStoreFailure: open}", "onStoreFailure: open, overrides: [{match: {ip: 203.0.113.9}, capacity: 5, comment: test}]}", 1) +
		"  - {id: log, key: [ip], algorithm: sliding-log, limit: 10, window: 60s, onStoreFailure: open}\n"
	memory := start(t, policies)
	opts, log := options(t, policies)
	opts.Store, opts.Redis = "redis", app.RedisOptions{URLs: []string{redistest.StartStandalone(t).URL()}, Mode: "standalone"}
	opts.StoreTimeout = 5 * time.Second // a busy machine
	opts.Trace.Endpoint = "http://127.0.0.1:1"
	shared := launch(t, opts, log)
	shown := map[string]bool{}
	for _, i := range []*instance{memory, shared} {
		i.call("ip", "203.0.113.7")
		_, text := i.page("/metrics")
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (\w+) `).FindAllStringSubmatch(text, -1) {
			shown[m[1]] = true
		}
	}
	for _, file := range []string{"grafana/dashboard.json", "prometheus/rules.yaml"} {
		text, err := os.ReadFile("../../deploy/" + file)
		require.NoError(t, err)
		names := regexp.MustCompile(`\b(envoy_rls|process)_\w+\b(:\w+)?`).FindAllString(string(text), -1)
		require.Greater(t, len(names), 20)
		for _, name := range names {
			if name = strings.TrimSuffix(name, "_bucket"); notScraped[name] == "" {
				require.True(t, shown[name], "%s asks for %s", file, name)
			}
		}
	}
}
