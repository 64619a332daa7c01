package app

import (
	"context"
	"log/slog"
	"sync"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/redislimit"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
)

// The stores, as Options.Store names them.
const (
	storeMemory = "memory"
	storeRedis  = "redis"
)

// RedisOptions say where Redis is. The zero value of all but URLs is the default of redisbackend.Options, which says more.
type RedisOptions struct {
	URLs         []string
	Mode         string
	PoolSize     int
	PasswordFile string
	// SentinelPasswordFile is for the sentinels.
	SentinelPasswordFile string
	// CAFile, CertFile and KeyFile are for TLS.
	CAFile, CertFile, KeyFile string
}

func (o *RedisOptions) given() bool {
	return len(o.URLs) > 0 || o.Mode != "" || o.PoolSize != 0 || o.PasswordFile+o.SentinelPasswordFile+o.CAFile+o.CertFile+o.KeyFile != ""
}

// certificates tells whether there are files for TLS.
func (o *RedisOptions) certificates() bool { return o.CAFile+o.CertFile != "" }

// stores is where buckets live: one of memory and shared is not nil.
type stores struct {
	cache  *rejectcache.Cache // in front of either
	memory *memorybackend.Store

	shared   *redislimit.Store // on Redis
	eviction eviction
}

// eviction is what the nodes have told of their maxmemory-policy.
type eviction struct {
	mu       sync.Mutex
	policies map[string]string // by node
	warned   bool
}

// openStore makes the store that the options name. It connects to nothing.
func (a *App) openStore() (ratelimit.Store, error) {
	if a.opts.Store != storeRedis {
		a.memory = memorybackend.New(memorybackend.Options{MaxBuckets: a.opts.MaxBuckets})
		a.cache = rejectcache.New(rejectcache.Options{Store: a.memory})
		return a.cache, nil
	}
	shared, err := redislimit.New(redislimit.Options{
		Redis: a.redisOptions(), Instances: a.opts.Instances, OnAbsent: a.redisAbsent,
		OnUnanswered: a.unanswered(), OnUndo: a.undone, OnTransition: a.breakerChanged(),
	})
	if err != nil {
		return nil, err
	}
	a.shared, a.cache = shared, shared.Cache
	return shared.Cache, nil
}

func (a *App) redisOptions() redisbackend.Options {
	o := a.opts.Redis
	failures := a.sparing()
	return redisbackend.Options{
		URLs: o.URLs, Mode: redisbackend.Mode(o.Mode), PoolSize: o.PoolSize, Timeout: a.opts.StoreTimeout,
		PasswordFile: o.PasswordFile, SentinelPasswordFile: o.SentinelPasswordFile,
		TLS: redisbackend.TLSOptions{CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile, OnReload: a.certificatesChanged(useRedis)},
		OnCall: func(c *redisbackend.Call) {
			a.metrics.OnStoreCall(c.Node, c.Took, c.Merged)
			a.page.OnStoreCall(c.Took)
		},
		OnLate: func(c *redisbackend.Call) { a.metrics.OnLateReply(c.Node) },
		OnFailure: func(f *redisbackend.Failure) {
			a.metrics.OnStoreFailure(f.Error.Node, string(f.Error.Reason), f.Took)
			if f.Undo {
				a.metrics.OnUndoFailed()
			}
			failures.log(slog.LevelWarn, "the store did not answer", "reason", string(f.Error.Reason), "error", f.Error)
		},
		OnUndo:            func(buckets []ratelimit.Bucket) { a.metrics.OnUndo(len(buckets)) },
		OnMaxMemoryPolicy: a.maxMemoryPolicy,
		OnReload:          func(r redisbackend.Reason) { a.metrics.OnSlotReload(string(r)) },
	}
}

// undone takes note of a charge that was given back since another policy's failure mode denied, or could not be.
func (a *App) undone(_ *ratelimit.Bucket, err error) {
	a.metrics.OnUndo(1)
	if err != nil {
		a.metrics.OnUndoFailed()
	}
}

// maxMemoryPolicy warns once if buckets may be forgotten.
func (a *App) maxMemoryPolicy(node, policy string) {
	e := &a.eviction
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.policies == nil {
		e.policies = map[string]string{}
	}
	e.policies[node] = policy
	if policy != noEviction && !e.warned {
		e.warned = true
		a.log.Warn("Redis may forget buckets when its memory runs short; set maxmemory-policy noeviction", "node", node, "maxmemory-policy", policy)
	}
}

const noEviction = "noeviction"

// mayEvict is nil if no node has told.
func (e *eviction) mayEvict() *bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.policies) == 0 {
		return nil
	}
	may := false
	for _, policy := range e.policies {
		may = may || policy != noEviction
	}
	return &may
}

// startStore begins to connect. A Redis that is not there is no fault: policies say what happens meanwhile.
func (a *App) startStore() error {
	if a.shared == nil {
		return nil
	}
	redisbackend.Quiet()
	if err := a.shared.Start(context.Background()); err != nil {
		return err
	}
	a.closers.push(func(context.Context) error {
		a.shared.Close()
		return nil
	})
	a.startBoard()
	if !a.shared.Fleet.Met() && a.opts.Instances == 0 {
		a.log.Warn("Redis does not tell how many instances there are; until it does, this one takes itself for the only one (see --instances)")
	}
	return nil
}

func (a *App) redisAbsent(err error) {
	a.log.Warn("Redis does not answer yet; until it does, each policy's onStoreFailure decides",
		"reason", string(redisbackend.ReasonOf(err)), "error", err)
}

// storeMetrics are what of metrics.Options depends on the store.
func (a *App) storeMetrics(o *metrics.Options) {
	o.Cache = func() metrics.Cache {
		s := a.cache.Stats()
		return metrics.Cache{Denials: s.Denials, Learnt: s.Learnt}
	}
	if a.shared != nil {
		o.Shared, o.Shares = a.sharedState, a.sharesState
		return
	}
	o.Store = a.memoryState
}

func (a *App) memoryState() metrics.Store {
	s := a.memory.Stats()
	return metrics.Store{
		Buckets: s.Buckets, EvictedBuckets: s.Evicted, EvictedTokens: s.EvictedTokens, Overflows: s.Shared, Joined: s.Joined,
	}
}

func (a *App) storeStatus() admin.StoreStatus {
	if a.shared != nil {
		return admin.StoreStatus{Kind: storeRedis, Redis: a.redisStatus()}
	}
	s := a.memory.Stats()
	return admin.StoreStatus{Kind: storeMemory, MemoryStatus: &admin.MemoryStatus{
		Buckets: s.Buckets, MaxBuckets: a.opts.MaxBuckets, EvictedBuckets: s.Evicted, EvictedTokens: s.EvictedTokens,
	}}
}
