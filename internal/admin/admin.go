// Package admin is the service's HTTP side for people and machines that run it: health, metrics, and what is in force.
//
// It only reads, and shows neither API keys nor anything else that clients send.
package admin

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/adminhttp"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Options are what the pages show. All but the last four are required, and called for each request.
type Options struct {
	// Ready says why the service must not get requests now; empty: it may.
	Ready func() string
	// Set is the policy set in force; nil if there is none.
	Set func() *policy.Set
	// Status is what /api/v1/status shows.
	Status func() Status
	// Metrics serves /metrics.
	Metrics http.Handler
	// Explain serves /api/v1/explain.
	Explain http.Handler
	// Instances is what /api/v1/instances shows.
	Instances func(context.Context) InstanceList
	// Buckets serves /api/v1/buckets/, /api/v1/blocks and /api/v1/audit.
	Buckets http.Handler
	// Authorize says who makes a request that changes something; an error, which is shown to whoever asks, refuses it. Nil: nobody may.
	Authorize func(*http.Request) (actor string, err error)
	// Home, if set, is served at / to whoever wants HTML.
	Home http.Handler
	// Routes are further things to be read.
	Routes []Route
	// ResolveKey finds the bucket that an id stands for, as the page shows ids in place of keys. Nil: no id stands for any.
	ResolveKey func(id string) (KnownBucket, bool)
}

// Route is one more thing to be read, by GET and HEAD.
type Route struct {
	Path    string // one that ends in / stands for all below it
	Shows   string // for the list of pages; empty: it is not listed
	Handler http.Handler
}

// KnownBucket is a bucket that decisions were about lately.
type KnownBucket struct {
	PolicyID string
	Key      policy.Key
	// Limits are those by which it was decided last. Zero: the policy's own.
	Limits algorithm.Limits
}

// Status is the state of the service.
type Status struct {
	Version       string       `json:"version"`
	Commit        string       `json:"commit,omitempty"`
	GoVersion     string       `json:"goVersion"`
	StartedAt     time.Time    `json:"startedAt"`
	UptimeSeconds float64      `json:"uptimeSeconds"`
	Ready         bool         `json:"ready"`
	NotReady      string       `json:"notReady,omitempty"` // why
	Policies      PolicyStatus `json:"policies"`
	Store         StoreStatus  `json:"store"`
}

// PolicyStatus tells of the policy files, or the database, and what was loaded from them.
type PolicyStatus struct {
	Source   string    `json:"source"` // file or postgres
	Path     string    `json:"path,omitempty"`
	Version  string    `json:"version"`
	Count    int       `json:"count"`
	Domains  []string  `json:"domains"`
	LoadedAt time.Time `json:"loadedAt"`
	Loads    uint64    `json:"loads"`
	Failures uint64    `json:"failures"`
	// Number is that of the version in force, and Kept whether it came from the instance's own file, if there is a database.
	Number int64 `json:"number,omitempty"`
	Kept   bool  `json:"kept,omitempty"`
	// Unreachable is why the database did not answer when it was asked last; empty if it did.
	Unreachable string `json:"unreachable,omitempty"`
	// Error is why what stands in the files now, or is active in the database, is not in force, with every fault; empty if it is.
	Error    string     `json:"error,omitempty"`
	FailedAt *time.Time `json:"failedAt,omitempty"`
}

// StoreStatus tells of the store: the part of the one that there is.
type StoreStatus struct {
	Kind string `json:"kind"` // memory or redis
	*MemoryStatus
	Redis *RedisStatus `json:"redis,omitempty"`
}

// MemoryStatus tells of the store in memory.
type MemoryStatus struct {
	Buckets        int     `json:"buckets"`
	MaxBuckets     int     `json:"maxBuckets,omitempty"`
	EvictedBuckets uint64  `json:"evictedBuckets"`
	EvictedTokens  float64 `json:"evictedTokens"`
}

// RedisStatus tells of the store on Redis.
type RedisStatus struct {
	// Available is the share of Nodes that decide: 1 if all do, 0 if none.
	Available float64      `json:"available"`
	Nodes     []NodeStatus `json:"nodes"` // those that calls have gone to lately
	// MayEvict is whether a node may forget buckets when its memory runs short; left out while that is unknown.
	MayEvict *bool `json:"mayEvict,omitempty"`
	// Instances is how many share the limits, as far as this one knows.
	Instances int `json:"instances"`
}

// NodeStatus tells of one node of the store. While its breaker is not closed, policies' onStoreFailure decides about the buckets that it has.
type NodeStatus struct {
	Node      string `json:"node"` // address; empty: buckets whose node is not known
	Connected bool   `json:"connected"`
	Queued    int    `json:"queued"`
	Breaker   string `json:"breaker"` // closed, half-open or open
	// What follows is about its last failure, and left out if that is long ago.
	Since  *time.Time `json:"since,omitempty"` // when it was found to fail, or to work again
	Reason string     `json:"reason,omitempty"`
	Next   *time.Time `json:"nextProbe,omitempty"` // when a call is let through to see whether it works again
}

// page is what somebody can ask for.
type page struct {
	Path  string `json:"path"`
	Shows string `json:"shows"`
}

// pages are all that Handler serves, besides the list of them.
var pages = []page{
	{"/healthz", "200 while the process runs"},
	{"/readyz", "200 while the service should get requests, else 503 and why not"},
	{"/metrics", "metrics for Prometheus"},
	{"/api/v1/status", "the build, the policy files and what is wrong with them, the store and its nodes"},
	{"/api/v1/policies", "the policies in force"},
	{"/api/v1/explain", "by POST: which policies apply to a request, and what their buckets say; nothing is spent"},
	{"/api/v1/instances", "the instances of the service, each with its build and the version of its policies"},
	{"/api/v1/shards", "the nodes of the store, and which of them decide"},
	{"/api/v1/breakers", "the breakers of these nodes: since when they are open and why"},
	{"/api/v1/buckets/show", "by POST: one bucket; reset, refund, set, block and unblock in place of show change it"},
	{"/api/v1/blocks", "what is blocked, until when and why"},
	{"/api/v1/audit", "what was changed by hand"},
}

// Handler serves the pages, and the list of them at /api/v1, and at / to whoever does not want HTML.
func Handler(o Options) http.Handler {
	mux := http.NewServeMux()
	list := listing(o.Routes)
	mux.Handle("/{$}", read(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Vary", "Accept")
		if o.Home != nil && strings.Contains(r.Header.Get("Accept"), "text/html") {
			o.Home.ServeHTTP(w, r)
			return
		}
		list(w, r)
	}))
	mux.Handle("/api/v1", read(list))
	for _, route := range o.Routes {
		mux.Handle(route.Path, read(route.Handler.ServeHTTP))
	}
	mux.Handle("/healthz", read(func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusOK, "ok")
	}))
	mux.Handle("/readyz", read(func(w http.ResponseWriter, _ *http.Request) {
		if reason := o.Ready(); reason != "" {
			text(w, http.StatusServiceUnavailable, reason)
			return
		}
		text(w, http.StatusOK, "ready")
	}))
	mux.Handle("/metrics", read(o.Metrics.ServeHTTP))
	mux.Handle("/api/v1/status", read(func(w http.ResponseWriter, _ *http.Request) {
		adminhttp.Reply(w, http.StatusOK, o.Status())
	}))
	mux.Handle("/api/v1/policies", read(func(w http.ResponseWriter, _ *http.Request) {
		set := o.Set()
		if set == nil {
			adminhttp.Fail(w, http.StatusServiceUnavailable, "no policy set is loaded")
			return
		}
		adminhttp.Reply(w, http.StatusOK, describe(set))
	}))
	mux.Handle("/api/v1/explain", o.Explain)
	serveFleet(mux, &o)
	if o.Buckets != nil {
		for _, path := range []string{"/api/v1/buckets/", "/api/v1/blocks", "/api/v1/audit"} {
			mux.Handle(path, o.Buckets)
		}
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		adminhttp.Fail(w, http.StatusNotFound, "there is no "+r.URL.Path)
	})
	return mux
}

// listing serves the list of pages.
func listing(routes []Route) http.HandlerFunc {
	all := slices.Clone(pages)
	for _, r := range routes {
		if r.Shows != "" {
			all = append(all, page{r.Path, r.Shows})
		}
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		adminhttp.Reply(w, http.StatusOK, map[string][]page{"pages": all})
	}
}

// DebugHandler serves the profiles of net/http/pprof. They show too much for others: it answers those only
// who ask for this machine by an address of loopback, or as localhost.
func DebugHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", http.NotFound) // there may be a password in it
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) { // a page elsewhere that has made its name one of this machine
			adminhttp.Fail(w, http.StatusForbidden, "want an address of loopback, or localhost, as the host")
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// isLoopback tells whether the host of a request is this machine by its address, or localhost.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Server is an HTTP server for h whose clients cannot hold on to it for long. An answer may take writeTimeout; 0: any time.
func Server(h http.Handler, writeTimeout time.Duration) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}

// read makes h answer GET and HEAD only, and nobody keep the answer.
func read(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			adminhttp.Fail(w, http.StatusMethodNotAllowed, r.URL.Path+" can only be read")
			return
		}
		h(w, r)
	})
}

func text(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(message + "\n")) // a client that left is no fault of ours
}
