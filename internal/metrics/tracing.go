package metrics

import "github.com/prometheus/client_golang/prometheus"

// Tracing tells what became of spans since the start: taken by the collector, sent in vain, or never sent.
type Tracing struct{ Exported, Failed, Dropped uint64 }

// tracingCollector asks for the numbers at each scrape.
type tracingCollector func() Tracing

var spansDesc = desc("trace_spans_total", "Spans, by what became of them: exported, failed (the collector did not take them), dropped (more came than could be sent).", "result")

// Describe implements prometheus.Collector.
func (tracingCollector) Describe(ch chan<- *prometheus.Desc) { ch <- spansDesc }

// Collect implements prometheus.Collector.
func (c tracingCollector) Collect(ch chan<- prometheus.Metric) {
	now := c()
	for result, n := range map[string]uint64{"exported": now.Exported, "failed": now.Failed, "dropped": now.Dropped} {
		ch <- prometheus.MustNewConstMetric(spansDesc, prometheus.CounterValue, float64(n), result)
	}
}
