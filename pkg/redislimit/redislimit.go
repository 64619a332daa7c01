// Package redislimit is a store for the limiter that counts on Redis and always has an answer: what stands in front of Redis, put together as
// in envoy-rls itself.
//
//	store, err := redislimit.New(redislimit.Options{Redis: redisbackend.Options{URLs: []string{"redis://redis.example.com:6379"}}})
//	…
//	if err := store.Start(ctx); err != nil {
//	…
//	defer store.Close()
//	limiter := ratelimit.New(ratelimit.Options{Store: store, Policies: policies})
//
// A decision passes through three stores. [rejectcache.Cache] denies at once what Redis has said to be empty. [fallback.Store] decides as
// each policy's onStoreFailure says, while Redis, or that node of it which has the bucket, does not answer; a local policy then admits this
// instance's share of the limit, and Redis is charged for it afterwards. [redisbackend.Store] asks Redis. Instances that use one Redis
// count each other through it; those of envoy-rls count, too.
package redislimit

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/rejectcache"
)

// Options are what a Store is made of.
type Options struct {
	// Redis says where Redis is, and how long a decision may wait for it. Of its hooks, OnCall, OnLate and OnFailure are not told of what Start
	// finds out by itself.
	Redis redisbackend.Options
	// Instances is how many instances share the limits at the least. Default: each is the only one until Redis has told of others.
	Instances int
	// OnAbsent, if set, is told by Start why Redis does not answer yet.
	OnAbsent func(error)
	// OnUnanswered, if set, is told of each bucket that a policy's onStoreFailure decided, and why. It must not keep the bucket.
	OnUnanswered func(*ratelimit.Bucket, error)
	// OnUndo, if set, is told of each charge that was given back because another policy's onStoreFailure denied the request, or could not be:
	// then error says why. It must not keep the bucket.
	OnUndo func(*ratelimit.Bucket, error)
	// OnTransition, if set, is told when a node of Redis is found to fail or to work again. It must be quick.
	OnTransition func(fallback.Transition)
}

// Store is a [ratelimit.Store] on Redis whose results carry no errors. It is safe for concurrent use.
type Store struct {
	// The parts, to look at: what each knows of its state. They are used and closed through the Store.
	Redis    *redisbackend.Store
	Fallback *fallback.Store
	Cache    *rejectcache.Cache
	Fleet    *fallback.Fleet

	id       string
	onAbsent func(error)
	warmed   atomic.Bool
	leave    context.CancelFunc
	running  sync.WaitGroup
}

var _ ratelimit.Store = (*Store)(nil)

const (
	// localBuckets bounds the buckets that are decided by this instance's shares: 26 MB.
	localBuckets = 262_144
	// instanceLife is how long an instance is counted after it was heard of last.
	instanceLife = 6 * time.Second
	// undoSettles is how long an undo that has begun may take as a rule. The cache learns nothing of its bucket meanwhile.
	undoSettles = 20 * time.Millisecond
)

// New makes a Store. It connects to nothing. The error says which of the Redis options is wrong.
func New(o Options) (*Store, error) {
	s := &Store{onAbsent: o.OnAbsent, leave: func() {}}
	redis, err := redisbackend.New(s.redisOptions(o.Redis))
	if err != nil {
		return nil, fmt.Errorf("redis: %w", err)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	s.Redis, s.id = redis, hex.EncodeToString(id[:])
	s.Fleet = fallback.NewFleet(fallback.FleetOptions{
		ID: s.id, Life: instanceLife, Least: o.Instances,
		Beat: func(ctx context.Context, id string) ([]string, error) { return redis.Beat(ctx, id, instanceLife) },
	})
	s.Fallback = fallback.New(s.fallbackOptions(&o))
	s.Cache = rejectcache.New(rejectcache.Options{Store: s.Fallback})
	return s, nil
}

// Acquire implements [ratelimit.Store]. No result carries an error.
func (s *Store) Acquire(ctx context.Context, buckets []ratelimit.Bucket, results []ratelimit.Result) []ratelimit.Result {
	return s.Cache.Acquire(ctx, buckets, results)
}

// ID names this instance among those that use the same Redis: 16 hexadecimal digits, others after each start.
func (s *Store) ID() string { return s.id }

// Members asks Redis for the IDs of the instances that live, this one among them, 1,024 at most. It waits for a second at most.
func (s *Store) Members(ctx context.Context) ([]string, error) {
	return s.Redis.Beat(ctx, s.id, instanceLife)
}

// Start begins to connect, and waits until Redis answers, half a second at most: a Redis that is not there yet is no error, since policies
// say what happens meanwhile. ctx bounds the wait only. An error is about the files that the Redis options name. Call it once, before Close.
func (s *Store) Start(ctx context.Context) error {
	if err := s.Redis.Start(ctx); err != nil {
		return fmt.Errorf("redis: %w", err)
	}
	if err := s.warm(ctx); err != nil && s.onAbsent != nil {
		s.onAbsent(err)
	}
	s.warmed.Store(true)
	s.Fleet.Beat(ctx)
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.leave = cancel
	s.running.Go(func() { s.Fleet.Run(running) })
	return nil
}

// Close ends what Start began, has Redis charged what it missed, and waits for what is being given back, a second at most for each. Decisions
// afterwards are those of policies' onStoreFailure.
func (s *Store) Close() {
	s.leave()
	s.running.Wait()
	s.Fallback.Close()
	s.Redis.Close()
}

// redisOptions adds to o's hooks.
func (s *Store) redisOptions(o redisbackend.Options) redisbackend.Options {
	if onCall := o.OnCall; onCall != nil {
		o.OnCall = func(c *redisbackend.Call) {
			if s.warmed.Load() {
				onCall(c)
			}
		}
	}
	if onFailure := o.OnFailure; onFailure != nil {
		o.OnFailure = func(f *redisbackend.Failure) {
			if s.warmed.Load() {
				onFailure(f)
			}
		}
	}
	onLate, onUndo := o.OnLate, o.OnUndo
	o.OnLate = func(c *redisbackend.Call) {
		if onLate != nil && s.warmed.Load() {
			onLate(c)
		}
		s.Cache.Learn(c.Buckets, c.Results, c.Queued)
		s.Fallback.Learn(c.Buckets, c.Results, c.Queued)
	}
	o.OnUndo = func(buckets []ratelimit.Bucket) {
		if onUndo != nil {
			onUndo(buckets)
		}
		for i := range buckets {
			s.Cache.Forget(buckets[i].Key, undoSettles)
		}
	}
	return o
}

func (s *Store) fallbackOptions(o *Options) fallback.Options {
	timeout := o.Redis.Timeout
	if timeout == 0 {
		timeout = redisbackend.DefaultTimeout
	}
	return fallback.Options{
		Store: s.Redis, Shard: s.Redis.Node, Classify: classify(timeout), Timeout: timeout,
		Local:     memorybackend.New(memorybackend.Options{MaxBuckets: localBuckets, MaxRuns: localBuckets}),
		Instances: s.Fleet.Instances,
		OnFailure: o.OnUnanswered, OnTransition: o.OnTransition, OnWithheld: s.Redis.Relearn,
		OnUndo: func(b *ratelimit.Bucket, err error) {
			if o.OnUndo != nil {
				o.OnUndo(b, err)
			}
			s.Cache.Forget(b.Key, 0)
		},
		Regret: func(err error) {
			var e *redisbackend.Error
			if errors.As(err, &e) {
				e.GiveBack()
			}
		},
	}
}
