package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
)

const (
	// localBuckets bounds the buckets that are decided by this instance's shares: 26 MB.
	localBuckets = 262_144
	// instanceLife is how long an instance is counted after it was heard of last.
	instanceLife = 6 * time.Second
)

// newFleet makes what knows the instances that share the limits. It starts nothing.
func (a *App) newFleet() *fallback.Fleet {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails: it ends the program instead
	return fallback.NewFleet(fallback.FleetOptions{
		ID: hex.EncodeToString(id[:]), Life: instanceLife, Least: a.opts.Instances,
		Beat: func(ctx context.Context, id string) ([]string, error) { return a.redis.Beat(ctx, id, instanceLife) },
	})
}

// localStore keeps the buckets that are decided by this instance's shares.
func localStore() *memorybackend.Store {
	return memorybackend.New(memorybackend.Options{MaxBuckets: localBuckets, MaxRuns: localBuckets})
}

// startFleet begins to tell the other instances of this one, and says so once if it has to guess how many there are.
func (a *App) startFleet() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	a.fleet.Beat(ctx)
	if !a.fleet.Met() && a.opts.Instances == 0 {
		a.log.Warn("Redis does not tell how many instances there are; until it does, this one takes itself for the only one (see --instances)")
	}
	go func() {
		defer close(done)
		a.fleet.Run(ctx)
	}()
	a.closers.push(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}

// sharesState is what is told of shares.
func (a *App) sharesState() metrics.Shares {
	d := a.fallback.Debts()
	return metrics.Shares{
		Instances: a.fleet.Instances().Count, Owing: d.Buckets, Charged: d.Charged, Unknown: d.Unknown, Dropped: d.Dropped,
	}
}
