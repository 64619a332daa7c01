// Package app is the whole service: the only place where concrete types meet. [New] makes it, [App.Run] runs it until it is
// told to stop; tests embed it on port 0.
package app

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/internal/page"
	"github.com/envoy-rls/envoy-rls/internal/tracing"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// Options are the settings of the service. The zero value of an optional one is its default.
type Options struct {
	// PolicySource is where policies come from: "file" (the default) or "postgres".
	PolicySource string
	// Policies is the policy file, or a directory of them, if that is the source.
	Policies string
	// PolicyDSNFile holds the connection string of the database, if that is the source, and PolicyKeptFile is where the last good policies are kept
	// for a start without it; empty: nowhere.
	PolicyDSNFile, PolicyKeptFile string
	// GRPCAddr, AdminAddr and DebugAddr are what to listen on: host:port. Port 0: any free one. DebugAddr must be of loopback, or empty: no
	// profiles.
	GRPCAddr, AdminAddr, DebugAddr string
	// GRPCTLS and AdminTLS are for TLS on those addresses.
	GRPCTLS, AdminTLS TLSOptions
	// AdminTokenFile has the tokens of those who may change things by the admin address. Empty: none; then only a client certificate will do, if
	// AdminTLS asks for one.
	AdminTokenFile string
	// Store is where buckets live: "memory" (the default) or "redis".
	Store string
	// Redis says where that is, if it is the store.
	Redis RedisOptions
	// StoreTimeout is how long a decision waits for Redis at most. 0: 5 ms.
	StoreTimeout time.Duration
	// Instances is how many instances share the limits at the least, for what each of them may admit while Redis does not answer. They
	// count each other through Redis; 0: until it has answered once, each takes itself for the only one.
	Instances int
	// MaxBuckets bounds the store in memory. At least 16; 0: the store's own default.
	MaxBuckets int
	// DrainDelay is how long the service goes on answering after it has said that it will stop, so that every Envoy hears of it.
	DrainDelay time.Duration
	// StopTimeout bounds the time after that for calls under way. 0: 10 s.
	StopTimeout time.Duration
	// ForcedTimeout bounds the time for calls under way when the service is told to stop at once: enough for any decision, and for
	// connections to close in order. 0: 250 ms.
	ForcedTimeout time.Duration
	// PollInterval is how often the policy files are compared, or the database is asked, without an event. 0: 30 s.
	PollInterval time.Duration
	// Trace says where to tell how single requests were decided, and how many.
	Trace TraceOptions
	// Version and Commit name the build.
	Version, Commit string
	// Read makes a policy set of files. Nil: policy.Load.
	Read func(paths ...string) (*policy.Set, error)
	// Log gets what happens. Nil: slog.Default.
	Log *slog.Logger
}

// App is the service. Make one with New; use it once.
type App struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics.Metrics
	stores
	policies
	security
	operations
	store   ratelimit.Store // what decides: with all that stands in front of where buckets live
	tracer  *tracing.Tracer // nil: nothing is traced
	limiter *ratelimit.Limiter
	service *rls.Service
	health  *health.Server
	page    *page.Page
	fleet   *fleetView

	started   time.Time
	serving   atomic.Bool
	closers   closers
	broken    chan error // a server that ended by itself
	grpcAddr  net.Addr
	adminAddr net.Addr
	debugAddr net.Addr
}

// New makes an App. It opens nothing and starts nothing. The error says which option is wrong.
func New(opts Options) (*App, error) {
	if err := opts.complete(); err != nil {
		return nil, err
	}
	a := &App{
		opts:   opts,
		log:    opts.Log,
		health: health.NewServer(),
		broken: make(chan error, 3), // one for each server, so that none waits
	}
	store, err := a.openStore()
	if err != nil {
		return nil, err
	}
	store = a.withBlocks(store)
	a.store = store
	counting := metrics.Options{
		Version: opts.Version, Commit: opts.Commit, GoVersion: runtime.Version(),
		ReloadFailing: func() bool { return a.source.Status().Err != nil },
	}
	a.storeMetrics(&counting)
	a.securityMetrics(&counting)
	a.changeMetrics(&counting)
	if opts.PolicySource == sourcePostgres {
		counting.Source = a.sourceState
	}
	if err := a.openTracing(&counting); err != nil {
		return nil, err
	}
	a.metrics = metrics.New(counting)
	a.limiter = ratelimit.New(ratelimit.Options{Store: a.tracedStore(), OnDecision: a.onDecision()})
	a.page = a.newPage()
	a.service = rls.NewService(a.limiter, a.tracedHooks())
	a.openPolicies()
	return a, nil
}

// mostBuckets is the largest bound that is taken for one: about a terabyte.
const mostBuckets = 10_000_000_000

// mostInstances is as many as a heartbeat lists.
const mostInstances = 1024

func (o *Options) complete() error {
	var faults []error
	faults = append(faults, o.completePolicies(), o.checkSecurity())
	if o.Store == "" {
		o.Store = storeMemory
	}
	if o.Store != storeMemory && o.Store != storeRedis {
		faults = append(faults, fmt.Errorf("store: %q is none of: memory, redis", o.Store))
	}
	if o.Store != storeRedis && o.Redis.given() {
		faults = append(faults, fmt.Errorf("redis options: the store is %s; want store redis", o.Store))
	}
	if o.MaxBuckets != 0 && o.MaxBuckets < 16 {
		faults = append(faults, fmt.Errorf("max-buckets: %d is less than 16", o.MaxBuckets))
	}
	if o.MaxBuckets > mostBuckets {
		faults = append(faults, fmt.Errorf("max-buckets: %d is more than %d: no machine has the memory", o.MaxBuckets, mostBuckets))
	}
	if o.Instances < 0 || o.Instances > mostInstances {
		faults = append(faults, fmt.Errorf("instances: %d is not from 0 to %d", o.Instances, mostInstances))
	}
	if o.Store != storeRedis && o.Instances != 0 {
		faults = append(faults, fmt.Errorf("instances: the store is %s; want store redis", o.Store))
	}
	if o.DrainDelay < 0 {
		faults = append(faults, fmt.Errorf("drain-delay: %v is negative", o.DrainDelay))
	}
	if o.StopTimeout <= 0 {
		o.StopTimeout = 10 * time.Second
	}
	if o.ForcedTimeout <= 0 {
		o.ForcedTimeout = 250 * time.Millisecond
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	return errors.Join(faults...)
}

func (o *Options) completePolicies() error {
	if o.PolicySource == "" {
		o.PolicySource = sourceFile
	}
	switch {
	case o.PolicySource == sourcePostgres && o.PolicyDSNFile == "":
		return errors.New("policy-dsn-file: no file given; the policy source is postgres")
	case o.PolicySource == sourcePostgres:
		return nil
	case o.PolicySource != sourceFile:
		return fmt.Errorf("policy-source: %q is none of: file, postgres", o.PolicySource)
	case o.PolicyDSNFile != "":
		return errors.New("policy-dsn-file: the policy source is file; want policy-source postgres")
	case o.Policies == "":
		return errors.New("policies: no file or directory given")
	}
	return nil
}

// GRPCAddr is where the rate limit service listens. Nil before Start.
func (a *App) GRPCAddr() net.Addr { return a.grpcAddr }

// AdminAddr is where the admin pages listen. Nil before Start.
func (a *App) AdminAddr() net.Addr { return a.adminAddr }

// DebugAddr is where the profiles listen. Nil before Start, or if there are none.
func (a *App) DebugAddr() net.Addr { return a.debugAddr }
