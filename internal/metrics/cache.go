package metrics

import "github.com/prometheus/client_golang/prometheus"

// Cache counts what the rejection cache denied, and what it learnt, since the start.
type Cache struct{ Denials, Learnt uint64 }

// cacheCollector asks for the counts at each scrape.
type cacheCollector func() Cache

var (
	cacheDenialsDesc = desc("rejection_cache_denials_total", "Buckets known to be empty that the store was not asked for.")
	cacheLearntDesc  = desc("rejection_cache_learnt_total", "Denials of the store that the rejection cache took note of.")
)

// Describe implements prometheus.Collector.
func (c cacheCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- cacheDenialsDesc
	ch <- cacheLearntDesc
}

// Collect implements prometheus.Collector.
func (c cacheCollector) Collect(ch chan<- prometheus.Metric) {
	now := c()
	ch <- prometheus.MustNewConstMetric(cacheDenialsDesc, prometheus.CounterValue, float64(now.Denials))
	ch <- prometheus.MustNewConstMetric(cacheLearntDesc, prometheus.CounterValue, float64(now.Learnt))
}
