package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Shared is the state of a store that instances share.
type Shared struct {
	Queued map[string]int // calls that wait to be sent, by the address of the node
	// MayEvict is whether a node may forget buckets when its memory runs short. Nil: unknown.
	MayEvict *bool
}

// shared are the metrics of a store that instances share.
type shared struct {
	answered   prometheus.Counter
	calls      *prometheus.CounterVec
	duration   prometheus.Histogram
	unanswered *prometheus.CounterVec
	undone     prometheus.Counter
	undoFailed prometheus.Counter
	reloads    *prometheus.CounterVec
}

var (
	queuedDesc   = desc("store_queued_calls", "Calls that wait to be sent to a node of the store.", "node")
	mayEvictDesc = desc("store_may_evict", "1 if a node of the store forgets buckets when its memory runs short.")
)

func (m *Metrics) countShared(state func() Shared) {
	s := &m.shared
	s.calls = m.vec("store_calls_total", "Script calls to the store, by what came of them: answered, or why not.", "result")
	s.answered = s.calls.WithLabelValues("answered")
	s.duration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace,
		Name:      "store_call_duration_seconds",
		Help:      "How long a script call to the store took, from when it was ready to be sent until it was answered or given up.",
		Buckets:   []float64{100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1},
	})
	s.unanswered = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "unanswered_buckets_total", Help: "Buckets that the store could not decide, by the failure mode that did, and why.",
	}, []string{"mode", "reason"})
	m.registry.MustRegister(s.duration, s.unanswered)
	undos := m.vec("store_undos_total", "Charges given back since another bucket of the request was denied.", "result")
	s.undone, s.undoFailed = undos.WithLabelValues("begun"), undos.WithLabelValues("failed")
	s.reloads = m.vec("store_slot_reloads_total", "Times that the cluster was asked for its slots because of what a node said or failed to say.", "reason")
	m.registry.MustRegister(sharedCollector(state))
}

// OnStoreCall counts a script call that the store has answered.
func (m *Metrics) OnStoreCall(took time.Duration) {
	m.shared.answered.Inc()
	m.shared.duration.Observe(took.Seconds())
}

// OnStoreFailure counts a script call that was not answered. The reason must be one of a few.
func (m *Metrics) OnStoreFailure(reason string, took time.Duration) {
	m.shared.calls.WithLabelValues(reason).Inc()
	m.shared.duration.Observe(took.Seconds())
}

// OnUnanswered counts a bucket that was decided by its failure mode.
func (m *Metrics) OnUnanswered(mode, reason string) {
	m.shared.unanswered.WithLabelValues(mode, reason).Inc()
}

// OnUndo counts n charges that are being given back.
func (m *Metrics) OnUndo(n int) { m.shared.undone.Add(float64(n)) }

// OnUndoFailed counts a call that was to give charges back: they are lost to the client.
func (m *Metrics) OnUndoFailed() { m.shared.undoFailed.Inc() }

// OnSlotReload counts a question for the cluster's slots.
func (m *Metrics) OnSlotReload(reason string) { m.shared.reloads.WithLabelValues(reason).Inc() }

// sharedCollector asks for the state of the store at each scrape.
type sharedCollector func() Shared

// Describe implements prometheus.Collector.
func (s sharedCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queuedDesc, mayEvictDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s sharedCollector) Collect(ch chan<- prometheus.Metric) {
	now := s()
	for node, n := range now.Queued {
		ch <- prometheus.MustNewConstMetric(queuedDesc, prometheus.GaugeValue, float64(n), node)
	}
	if now.MayEvict != nil {
		value := 0.0
		if *now.MayEvict {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(mayEvictDesc, prometheus.GaugeValue, value)
	}
}
