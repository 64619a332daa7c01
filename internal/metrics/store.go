package metrics

import "github.com/prometheus/client_golang/prometheus"

// storeCollector asks a store for its state at each scrape.
type storeCollector struct{ state func() Store }

var (
	bucketsDesc        = desc("buckets", "Buckets held.")
	evictedBucketsDesc = desc("evicted_buckets_total", "Buckets forgotten for want of room before they were full again.")
	evictedTokensDesc  = desc("evicted_tokens_total", "What was missing in the buckets that were forgotten: at most so much was admitted too many.")
	overflowsDesc      = desc("overflow_charges_total", "Charges to a bucket that several keys share for want of room.")
	joinedDesc         = desc("joined_log_runs_total", "Times that a sliding log lost precision for want of room.")
)

func newStoreCollector(state func() Store) *storeCollector { return &storeCollector{state} }

// Describe implements prometheus.Collector.
func (s *storeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{bucketsDesc, evictedBucketsDesc, evictedTokensDesc, overflowsDesc, joinedDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *storeCollector) Collect(ch chan<- prometheus.Metric) {
	now := s.state()
	ch <- prometheus.MustNewConstMetric(bucketsDesc, prometheus.GaugeValue, float64(now.Buckets))
	ch <- prometheus.MustNewConstMetric(evictedBucketsDesc, prometheus.CounterValue, float64(now.EvictedBuckets))
	ch <- prometheus.MustNewConstMetric(evictedTokensDesc, prometheus.CounterValue, now.EvictedTokens)
	ch <- prometheus.MustNewConstMetric(overflowsDesc, prometheus.CounterValue, float64(now.Overflows))
	ch <- prometheus.MustNewConstMetric(joinedDesc, prometheus.CounterValue, float64(now.Joined))
}
