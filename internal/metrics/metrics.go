// Package metrics counts what the service decides and does, for Prometheus. It is the only package that knows Prometheus: the
// others offer hooks, which internal/app connects to the methods here.
//
// No label ever carries what a client sends: the number of series depends on the policies alone.
package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const namespace = "envoy_rls"

// Options are what Metrics shows besides what it is told by its hooks.
type Options struct {
	// Version, Commit and GoVersion name the build.
	Version, Commit, GoVersion string
	// Store, if set, gives the state of the store in process at each scrape.
	Store func() Store
	// Cache, if set, gives the counts of the rejection cache at each scrape.
	Cache func() Cache
	// Shares, if set, gives what instances decide by their shares while the store fails, at each scrape.
	Shares func() Shares
	// Shared, if set, gives the state of a store that instances share at each scrape. Only then may its hooks be called.
	Shared func() Shared
	// ReloadFailing, if set, tells at each scrape whether the policy files say something that could not be loaded.
	ReloadFailing func() bool
	// Security says what there is to count of TLS and of who may change things.
	Security Security
	// Tracing, if set, tells what became of spans, at each scrape.
	Tracing func() Tracing
	// Source, if set, gives the state of the database that policies come from at each scrape.
	Source func() Source
	// Blocked, if set, gives the number of blocked buckets at each scrape. ChangeActions and ChangeOutcomes are what OnChange can be told.
	Blocked                       func() int
	ChangeActions, ChangeOutcomes []string
}

// Store is the state of a store in process.
type Store struct {
	Buckets        int     // held now
	EvictedBuckets uint64  // forgotten for want of room before they were full again, since the start
	EvictedTokens  float64 // what was missing in them
	Overflows      uint64  // charges to a bucket that several keys share for want of room, since the start
	Joined         uint64  // times that a log lost precision for want of room, since the start
}

// Metrics counts. Its methods are safe for concurrent use. Make one with New.
type Metrics struct {
	registry *prometheus.Registry
	policies *policies
	shared   shared
	security security
	changes  *prometheus.CounterVec

	duration      prometheus.Histogram
	allowed       prometheus.Counter
	denied        prometheus.Counter
	invalidIPs    prometheus.Counter
	unknownDomain prometheus.Counter
	unmatched     prometheus.Counter
	descriptors   prometheus.Counter
	truncated     prometheus.Counter
	ignoredLimits prometheus.Counter
	grpcErrors    *prometheus.CounterVec
	reloaded      prometheus.Counter
	reloadFailed  prometheus.Counter
}

// New makes Metrics with a registry of its own.
func New(o Options) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry(), policies: newPolicies()}
	m.duration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace,
		Name:      "decision_duration_seconds",
		Help:      "How long a decision took, from the attributes to the answer of the store.",
		Buckets: []float64{
			0.25e-6, 0.5e-6, 1e-6, 2e-6, 5e-6, 10e-6, 20e-6, 50e-6, 100e-6, 200e-6, 500e-6, 1e-3, 2e-3, 5e-3, 10e-3, 20e-3, 50e-3, 100e-3, 200e-3, 500e-3, 1,
		},
	})
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.policies,
		m.duration,
	)
	m.countRequests()
	m.countReloads()
	m.countSecurity(o.Security)
	m.registry.MustRegister(buildInfo(o))
	if o.Store != nil {
		m.registry.MustRegister(newStoreCollector(o.Store))
	}
	if o.Cache != nil {
		m.registry.MustRegister(cacheCollector(o.Cache))
	}
	if o.Shares != nil {
		m.registry.MustRegister(sharesCollector(o.Shares))
	}
	if o.Shared != nil {
		m.countShared(o.Shared)
	}
	if o.ReloadFailing != nil {
		m.registry.MustRegister(failing(o.ReloadFailing))
	}
	if o.Tracing != nil {
		m.registry.MustRegister(tracingCollector(o.Tracing))
	}
	if o.Blocked != nil {
		m.countChanges(o.ChangeActions, o.ChangeOutcomes, o.Blocked)
	}
	if o.Source != nil {
		m.registry.MustRegister(sourceCollector(o.Source))
	}
	return m
}

func (m *Metrics) countRequests() {
	requests := m.vec("requests_total", "Requests decided, by what the whole of the policies said.", "outcome")
	m.allowed = requests.WithLabelValues("allowed")
	m.denied = requests.WithLabelValues("denied")
	m.invalidIPs = m.counter("invalid_ip_total", "Values that should have been IP addresses and were not.")
	m.unknownDomain = m.counter("unknown_domain_requests_total", "Requests let through since no policy file serves their domain.")
	m.unmatched = m.counter("unmatched_requests_total", "Requests let through since no policy of their domain matched.")
	m.descriptors = m.counter("unmatched_descriptors_total", "Descriptors that fed no policy.")
	m.truncated = m.counter("truncated_requests_total", "Requests with more descriptors or entries than are read.")
	m.ignoredLimits = m.counter("ignored_descriptor_limits_total", "Limits sent with a descriptor, which are not used.")
	m.grpcErrors = m.vec("grpc_errors_total", "Calls answered with a gRPC error. Envoy lets such requests through, unless told otherwise.", "code")
	m.grpcErrors.WithLabelValues("InvalidArgument") // the only one that the service itself gives
}

func (m *Metrics) countReloads() {
	reloads := m.vec("reload_total", "Policy sets loaded, and refused.", "result")
	m.reloaded = reloads.WithLabelValues("success")
	m.reloadFailed = reloads.WithLabelValues("failure")
}

func failing(is func() bool) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: namespace, Name: "reload_failing", Help: "1 while the policy files, or the active version in the database, say something that could not be loaded.",
	}, func() float64 {
		return number(is())
	})
}

func (m *Metrics) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help})
	m.registry.MustRegister(c)
	return c
}

func (m *Metrics) vec(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}, []string{label})
	m.registry.MustRegister(c)
	return c
}

func buildInfo(o Options) prometheus.Collector {
	g := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Namespace: namespace, Name: "build_info", Help: "Always 1; the labels name the build.",
	}, []string{"version", "commit", "go_version"})
	g.WithLabelValues(o.Version, o.Commit, o.GoVersion).Set(1)
	return g
}

// Handler serves the metrics in Prometheus' text formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Timeout: 10 * time.Second})
}

// Registry holds the metrics.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }

// OnDecision counts a decision. It allocates nothing.
func (m *Metrics) OnDecision(d *ratelimit.Decision) {
	m.duration.Observe(d.Took.Seconds())
	if d.Allowed {
		m.allowed.Inc()
	} else {
		m.denied.Inc()
	}
	if d.InvalidIPs > 0 {
		m.invalidIPs.Add(float64(d.InvalidIPs))
	}
	switch {
	case len(d.Checks)+len(d.Skipped) > 0:
		m.policies.count(d)
	case d.DomainKnown:
		m.unmatched.Inc()
	default:
		m.unknownDomain.Inc()
	}
}

// OnUnmatched counts n descriptors that fed no policy.
func (m *Metrics) OnUnmatched(_ []byte, n int) { m.descriptors.Add(float64(n)) }

// OnTruncated counts a request with more descriptors or entries than are read.
func (m *Metrics) OnTruncated([]byte) { m.truncated.Inc() }

// OnLimitIgnored counts n limits that came with descriptors.
func (m *Metrics) OnLimitIgnored(_ []byte, n int) { m.ignoredLimits.Add(float64(n)) }

// OnGRPCError counts a call that was answered with an error. The code must be one of gRPC's names.
func (m *Metrics) OnGRPCError(code string) { m.grpcErrors.WithLabelValues(code).Inc() }

// OnReloadFailed counts a fault that kept a policy set from being loaded.
func (m *Metrics) OnReloadFailed(error) { m.reloadFailed.Inc() }
