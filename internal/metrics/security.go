package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Security says what there is to count of TLS and of who may change things.
type Security struct {
	// Certificates gives at each scrape when the certificate for each use ends; zero: not read yet, or there is none.
	Certificates func() map[string]time.Time
	// Uses are what TLS is used for: grpc, admin, redis.
	Uses []string
	// Reasons are why a request to change something can be refused.
	Reasons []string
}

// security are the metrics of TLS and of who may change things.
type security struct {
	reloads *prometheus.CounterVec // use, result
	failing *prometheus.GaugeVec   // use
	failed  *prometheus.CounterVec // server
	refused *prometheus.CounterVec // reason

	tokensFailing prometheus.Gauge
}

var expiryDesc = desc("certificate_expiry_timestamp_seconds", "When the certificate in force ends.", "use")

func (m *Metrics) countSecurity(o Security) {
	s := &m.security
	s.reloads = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "certificate_reload_total", Help: "Other certificate files that came into force, and that could not be used.",
	}, []string{"use", "result"})
	s.failing = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "certificate_reload_failing", Help: "1 while the certificate files cannot be used, and what they held before is in force.",
	}, []string{"use"})
	s.failed = m.vec("tls_handshake_failures_total", "Connections to a server of this service that did not come to be.", "server")
	s.refused = m.vec("admin_refused_total", "Requests to change something that were refused.", "reason")
	s.tokensFailing = prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: namespace, Name: "admin_tokens_failing", Help: "1 while the token file cannot be used, so that no token is good.",
	})
	m.registry.MustRegister(s.reloads, s.failing, s.tokensFailing)
	for _, use := range o.Uses {
		s.failing.WithLabelValues(use)
		for _, result := range []string{"success", "failure"} {
			s.reloads.WithLabelValues(use, result)
		}
		if use != "redis" {
			s.failed.WithLabelValues(use)
		}
	}
	for _, reason := range o.Reasons {
		s.refused.WithLabelValues(reason)
	}
	if o.Certificates != nil {
		m.registry.MustRegister(expiryCollector(o.Certificates))
	}
}

// OnCertificates counts other certificate files for a use: in force (nil), or of no use.
func (m *Metrics) OnCertificates(use string, err error) {
	result := "success"
	if err != nil {
		result = "failure"
	}
	m.security.reloads.WithLabelValues(use, result).Inc()
	m.security.failing.WithLabelValues(use).Set(number(err != nil))
}

// OnHandshakeFailed counts a connection to a server that did not come to be.
func (m *Metrics) OnHandshakeFailed(server string) { m.security.failed.WithLabelValues(server).Inc() }

// OnRefused counts a request to change something that was refused. The reason must be one of Security.Reasons.
func (m *Metrics) OnRefused(reason string) { m.security.refused.WithLabelValues(reason).Inc() }

// OnTokens takes note of whether the token file can be used.
func (m *Metrics) OnTokens(err error) { m.security.tokensFailing.Set(number(err != nil)) }

// expiryCollector asks at each scrape.
type expiryCollector func() map[string]time.Time

// Describe implements prometheus.Collector.
func (c expiryCollector) Describe(ch chan<- *prometheus.Desc) { ch <- expiryDesc }

// Collect implements prometheus.Collector.
func (c expiryCollector) Collect(ch chan<- prometheus.Metric) {
	for use, ends := range c() {
		if !ends.IsZero() {
			ch <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, float64(ends.Unix()), use)
		}
	}
}
