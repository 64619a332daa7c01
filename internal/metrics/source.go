package metrics

import "github.com/prometheus/client_golang/prometheus"

// Source is the state of a database that policies come from.
type Source struct {
	Up      bool  // it answered when it was asked last
	Version int64 // number of the version in force
	Kept    bool  // that one came from the instance's own file
}

var (
	sourceUpDesc      = desc("policy_source_up", "1 if the policy database answered when it was asked last.")
	sourceVersionDesc = desc("policy_version", "Number of the version of the policies in force.")
	sourceKeptDesc    = desc("policy_version_kept", "1 while the version in force is one that was kept here, and the policy database has not confirmed it.")
)

// sourceCollector shows the state of the source at each scrape.
type sourceCollector func() Source

// Describe implements prometheus.Collector.
func (sourceCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- sourceUpDesc
	ch <- sourceVersionDesc
	ch <- sourceKeptDesc
}

// Collect implements prometheus.Collector.
func (c sourceCollector) Collect(ch chan<- prometheus.Metric) {
	s := c()
	for d, value := range map[*prometheus.Desc]float64{sourceUpDesc: number(s.Up), sourceVersionDesc: float64(s.Version), sourceKeptDesc: number(s.Kept)} {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value)
	}
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
