package metrics_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
)

func TestSecurity(t *testing.T) {
	m := metrics.New(metrics.Options{Security: metrics.Security{
		Uses: []string{"grpc", "redis"}, Reasons: []string{"bad-token"},
		Certificates: func() map[string]time.Time {
			return map[string]time.Time{"grpc": time.Unix(1_900_000_000, 0), "redis": {}}
		},
	}})
	m.OnCertificates("grpc", errors.New("half"))
	m.OnCertificates("grpc", nil)
	m.OnCertificates("redis", errors.New("half"))
	m.OnHandshakeFailed("grpc")
	m.OnRefused("bad-token")
	m.OnTokens(errors.New("half"))
	want := `
# HELP envoy_rls_admin_refused_total Requests to change something that were refused.
# TYPE envoy_rls_admin_refused_total counter
envoy_rls_admin_refused_total{reason="bad-token"} 1
# HELP envoy_rls_admin_tokens_failing 1 while the token file cannot be used, so that no token is good.
# TYPE envoy_rls_admin_tokens_failing gauge
envoy_rls_admin_tokens_failing 1
# HELP envoy_rls_certificate_expiry_timestamp_seconds When the certificate in force ends.
# TYPE envoy_rls_certificate_expiry_timestamp_seconds gauge
envoy_rls_certificate_expiry_timestamp_seconds{use="grpc"} 1.9e+09
# HELP envoy_rls_certificate_reload_failing 1 while the certificate files cannot be used, and what they held before is in force.
# TYPE envoy_rls_certificate_reload_failing gauge
envoy_rls_certificate_reload_failing{use="grpc"} 0
envoy_rls_certificate_reload_failing{use="redis"} 1
# HELP envoy_rls_certificate_reload_total Other certificate files that came into force, and that could not be used.
# TYPE envoy_rls_certificate_reload_total counter
envoy_rls_certificate_reload_total{result="failure",use="grpc"} 1
envoy_rls_certificate_reload_total{result="failure",use="redis"} 1
envoy_rls_certificate_reload_total{result="success",use="grpc"} 1
envoy_rls_certificate_reload_total{result="success",use="redis"} 0
# HELP envoy_rls_tls_handshake_failures_total Connections to a server of this service that did not come to be.
# TYPE envoy_rls_tls_handshake_failures_total counter
envoy_rls_tls_handshake_failures_total{server="grpc"} 1
`
	require.NoError(t, testutil.GatherAndCompare(m.Registry(), strings.NewReader(want), "envoy_rls_admin_refused_total", "envoy_rls_admin_tokens_failing",
		"envoy_rls_certificate_expiry_timestamp_seconds", "envoy_rls_certificate_reload_failing", "envoy_rls_certificate_reload_total", "envoy_rls_tls_handshake_failures_total"))
}
