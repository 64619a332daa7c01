package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// nodes counts the script calls to each node of a store. Nodes come and go, and their series with them: a label that is a node exists only as
// long as the store knows that node.
type nodes struct {
	calls       *prometheus.CounterVec
	merged      *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	late        *prometheus.CounterVec
	transitions *prometheus.CounterVec

	byName sync.Map // to *node: looked up for each call, by less than what Prometheus takes for that
}

type node struct {
	answered prometheus.Counter
	merged   prometheus.Counter
	duration prometheus.Observer
}

// unknownNode is the label of calls that found no node.
const unknownNode = "unknown"

func newNodes() *nodes {
	return &nodes{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "store_calls_total", Help: "Calls to the store, by what came of them: answered, or why not. Those that were merged count each.",
		}, []string{"node", "result"}),
		merged: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "store_merged_calls_total", Help: "Answered calls to the store that shared the script call of an identical one.",
		}, []string{"node"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace,
			Name:      "store_call_duration_seconds",
			Help:      "How long a script call to the store took, from when it was ready to be sent until it was answered or given up.",
			Buckets:   []float64{50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3, 6e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1},
		}, []string{"node"}),
		late: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "store_late_replies_total", Help: "Replies to calls that had been given up.",
		}, []string{"node"}),
		transitions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "store_breaker_transitions_total", Help: "Changes of a node's breaker, by the state that it came to.",
		}, []string{"node", "to"}),
	}
}

// of finds or makes a node. Whoever makes another series of a node does that first: keep finds what it has to drop by the nodes.
func (n *nodes) of(name string) *node {
	if found, ok := n.byName.Load(name); ok {
		return found.(*node)
	}
	label := labelOf(name)
	made, _ := n.byName.LoadOrStore(name, &node{
		answered: n.calls.WithLabelValues(label, "answered"), merged: n.merged.WithLabelValues(label), duration: n.duration.WithLabelValues(label),
	})
	for _, to := range breakerStates {
		n.transitions.WithLabelValues(label, to)
	}
	return made.(*node)
}

// collectors are all that has series by node.
func (n *nodes) collectors() []prometheus.Collector {
	return []prometheus.Collector{n.calls, n.merged, n.duration, n.late, n.transitions}
}

func labelOf(name string) string {
	if name == "" {
		return unknownNode
	}
	return name
}

// keep drops the series of all nodes but these, and gives each of these its own.
func (n *nodes) keep(names map[string]NodeState) {
	for name := range names {
		n.of(name)
	}
	n.byName.Range(func(key, _ any) bool {
		name := key.(string)
		if _, ok := names[name]; !ok && name != "" {
			n.byName.Delete(name)
			gone := prometheus.Labels{"node": name}
			n.calls.DeletePartialMatch(gone)
			n.merged.DeletePartialMatch(gone)
			n.duration.DeletePartialMatch(gone)
			n.late.DeletePartialMatch(gone)
			n.transitions.DeletePartialMatch(gone)
		}
		return true
	})
}

// OnStoreCall counts a call that a node of the store has answered, by the script call of an identical one if it was merged.
func (m *Metrics) OnStoreCall(node string, took time.Duration, merged bool) {
	n := m.shared.nodes.of(node)
	n.answered.Inc()
	if merged {
		n.merged.Inc()
	}
	n.duration.Observe(took.Seconds())
}

// OnStoreFailure counts a script call that was not answered; the node is empty if none was found. The reason must be one of a few.
func (m *Metrics) OnStoreFailure(node, reason string, took time.Duration) {
	m.shared.nodes.calls.WithLabelValues(labelOf(node), reason).Inc()
	m.shared.nodes.of(node).duration.Observe(took.Seconds())
}

// OnLateReply counts a reply to a call that had been given up.
func (m *Metrics) OnLateReply(node string) {
	m.shared.nodes.late.WithLabelValues(labelOf(node)).Inc()
	m.shared.nodes.of(node)
}

// OnBreaker counts a change of a node's breaker: to closed, open or half-open.
func (m *Metrics) OnBreaker(node, to string) {
	m.shared.nodes.transitions.WithLabelValues(labelOf(node), to).Inc()
	m.shared.nodes.of(node)
}

// breakerStates are what a breaker can be in, by the value of its gauge.
var breakerStates = []string{"closed", "half-open", "open"}
