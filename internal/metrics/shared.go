package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Shared is the state of a store that instances share.
type Shared struct {
	Nodes map[string]NodeState // by address; the empty one stands for those that are not known yet
	// Available is the share of the store that decides: 1 if all of it does, 0 if none.
	Available float64
	// MayEvict is whether a node may forget buckets when its memory runs short. Nil: unknown.
	MayEvict *bool
}

// NodeState is the state of one node of the store.
type NodeState struct {
	Queued  int    // calls that wait to be sent
	Breaker string // closed, half-open or open
}

// shared are the metrics of a store that instances share.
type shared struct {
	nodes      *nodes
	unanswered *prometheus.CounterVec
	undone     prometheus.Counter
	undoFailed prometheus.Counter
	reloads    *prometheus.CounterVec
}

var (
	queuedDesc    = desc("store_queued_calls", "Calls that wait to be sent to a node of the store.", "node")
	breakerDesc   = desc("store_breaker_state", "Whether calls go to a node of the store: 0 yes, 1 one at a time, 2 no.", "node")
	availableDesc = desc("store_available", "The share of the store's nodes that decide.")
	mayEvictDesc  = desc("store_may_evict", "1 if a node of the store forgets buckets when its memory runs short.")
)

func (m *Metrics) countShared(state func() Shared) {
	s := &m.shared
	s.nodes = newNodes()
	s.unanswered = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace, Name: "unanswered_buckets_total", Help: "Buckets that the store could not decide, by the failure mode that did, and why.",
	}, []string{"mode", "reason"})
	m.registry.MustRegister(s.unanswered)
	undos := m.vec("store_undos_total", "Charges given back since another bucket of the request was denied.", "result")
	s.undone, s.undoFailed = undos.WithLabelValues("begun"), undos.WithLabelValues("failed")
	s.reloads = m.vec("store_slot_reloads_total", "Times that the cluster was asked for its slots because of what a node said or failed to say.", "reason")
	m.registry.MustRegister(sharedCollector{state, s.nodes})
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
type sharedCollector struct {
	state func() Shared
	nodes *nodes
}

// Describe implements prometheus.Collector.
func (s sharedCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queuedDesc, breakerDesc, availableDesc, mayEvictDesc} {
		ch <- d
	}
	for _, c := range s.nodes.collectors() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (s sharedCollector) Collect(ch chan<- prometheus.Metric) {
	now := s.state()
	s.nodes.keep(now.Nodes)
	for _, c := range s.nodes.collectors() {
		c.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for name, n := range now.Nodes {
		gauge(queuedDesc, float64(n.Queued), labelOf(name))
		gauge(breakerDesc, float64(slices.Index(breakerStates, n.Breaker)), labelOf(name))
	}
	gauge(availableDesc, now.Available)
	if now.MayEvict != nil {
		value := 0.0
		if *now.MayEvict {
			value = 1
		}
		gauge(mayEvictDesc, value)
	}
}
