package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
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
	// CAFile, CertFile and KeyFile are for TLS.
	CAFile, CertFile, KeyFile string
}

func (o *RedisOptions) given() bool {
	return len(o.URLs) > 0 || o.Mode != "" || o.PoolSize != 0 || o.PasswordFile+o.CAFile+o.CertFile+o.KeyFile != ""
}

// stores is where buckets live: one of memory and redis is not nil.
type stores struct {
	cache  *rejectcache.Cache // in front of either
	memory *memorybackend.Store

	redis    *redisbackend.Store
	fallback *fallback.Store
	fleet    *fallback.Fleet
	eviction eviction
	warmed   atomic.Bool // calls before that are not counted
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
	var err error
	if a.redis, err = redisbackend.New(a.redisOptions()); err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	a.fleet = a.newFleet()
	a.fallback = fallback.New(a.fallbackOptions())
	a.cache = rejectcache.New(rejectcache.Options{Store: a.fallback})
	return a.cache, nil
}

func (a *App) redisOptions() redisbackend.Options {
	o := a.opts.Redis
	failures := a.sparing()
	return redisbackend.Options{
		URLs: o.URLs, Mode: redisbackend.Mode(o.Mode), PoolSize: o.PoolSize, Timeout: a.opts.StoreTimeout,
		PasswordFile: o.PasswordFile, TLS: redisbackend.TLSOptions{CAFile: o.CAFile, CertFile: o.CertFile, KeyFile: o.KeyFile},
		OnCall: func(c *redisbackend.Call) {
			if a.warmed.Load() {
				a.metrics.OnStoreCall(c.Node, c.Took, c.Merged)
			}
		},
		OnLate: a.late,
		OnFailure: func(f *redisbackend.Failure) {
			if !a.warmed.Load() {
				return
			}
			a.metrics.OnStoreFailure(f.Error.Node, string(f.Error.Reason), f.Took)
			if f.Undo {
				a.metrics.OnUndoFailed()
			}
			failures.log(slog.LevelWarn, "the store did not answer", "reason", string(f.Error.Reason), "error", f.Error)
		},
		OnUndo: func(buckets []ratelimit.Bucket) {
			a.metrics.OnUndo(len(buckets))
			for i := range buckets {
				a.cache.Forget(buckets[i].Key, undoSettles)
			}
		},
		OnMaxMemoryPolicy: a.maxMemoryPolicy,
		OnReload:          func(r redisbackend.Reason) { a.metrics.OnSlotReload(string(r)) },
	}
}

// undoSettles is how long an undo that has begun may take as a rule. The rejection cache learns nothing of its bucket meanwhile.
const undoSettles = 20 * time.Millisecond

// undone takes note of a charge that was given back since another policy's failure mode denied, or could not be.
func (a *App) undone(b *ratelimit.Bucket, err error) {
	a.metrics.OnUndo(1)
	a.cache.Forget(b.Key, 0)
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
	if a.redis == nil {
		return nil
	}
	redisbackend.Quiet()
	if err := a.redis.Start(context.Background()); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	a.warm(context.Background())
	a.closers.push(func(context.Context) error {
		a.fallback.Close()
		a.redis.Close()
		return nil
	})
	a.startFleet()
	return nil
}

// storeMetrics are what of metrics.Options depends on the store.
func (a *App) storeMetrics(o *metrics.Options) {
	o.Cache = func() metrics.Cache {
		s := a.cache.Stats()
		return metrics.Cache{Denials: s.Denials, Learnt: s.Learnt}
	}
	if a.redis != nil {
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
	if a.redis != nil {
		return admin.StoreStatus{Kind: storeRedis, Redis: a.redisStatus()}
	}
	s := a.memory.Stats()
	return admin.StoreStatus{Kind: storeMemory, MemoryStatus: &admin.MemoryStatus{
		Buckets: s.Buckets, MaxBuckets: a.opts.MaxBuckets, EvictedBuckets: s.Evicted, EvictedTokens: s.EvictedTokens,
	}}
}
