package metrics

import "github.com/prometheus/client_golang/prometheus"

// countChanges counts what people do to buckets by hand.
func (m *Metrics) countChanges(actions, outcomes []string, blocked func() int) {
	m.changes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "bucket_changes_total", Help: "Requests to change a bucket by hand, by what came of them.",
	}, []string{"action", "outcome"})
	m.registry.MustRegister(m.changes)
	for _, a := range actions {
		for _, o := range outcomes {
			m.changes.WithLabelValues(a, o)
		}
	}
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "blocked_buckets", Help: "Buckets that are blocked, as far as this instance knows.",
	}, func() float64 { return float64(blocked()) }))
}

// OnChange counts a request to change a bucket. Only if Options.Blocked is set.
func (m *Metrics) OnChange(action, outcome string) { m.changes.WithLabelValues(action, outcome).Inc() }
