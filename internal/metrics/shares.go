package metrics

import "github.com/prometheus/client_golang/prometheus"

// Shares tells of what instances decide by their shares of limits while the store fails.
type Shares struct {
	Instances int    // that share the limits
	Owing     int64  // buckets for which the store is to be charged what was admitted
	Charged   uint64 // cost that it was charged
	Unknown   uint64 // cost that it may have been charged
	Dropped   uint64 // cost that it never will be charged
}

// sharesCollector asks for the state at each scrape.
type sharesCollector func() Shares

var (
	instancesDesc  = desc("instances", "Instances that share the limits while the store fails, as far as this one knows.")
	owingDesc      = desc("local_owing_buckets", "Buckets for which the store is to be charged what was admitted locally.")
	reconciledDesc = desc("local_reconciled_cost_total", "Cost admitted locally, by what became of charging the store for it.", "result")
)

// Describe implements prometheus.Collector.
func (s sharesCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{instancesDesc, owingDesc, reconciledDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s sharesCollector) Collect(ch chan<- prometheus.Metric) {
	now := s()
	ch <- prometheus.MustNewConstMetric(instancesDesc, prometheus.GaugeValue, float64(now.Instances))
	ch <- prometheus.MustNewConstMetric(owingDesc, prometheus.GaugeValue, float64(now.Owing))
	for result, cost := range map[string]uint64{"charged": now.Charged, "unknown": now.Unknown, "dropped": now.Dropped} {
		ch <- prometheus.MustNewConstMetric(reconciledDesc, prometheus.CounterValue, float64(cost), result)
	}
}
