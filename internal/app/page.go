package app

import (
	"context"
	"sync"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/page"
)

// newPage makes what follows the service for those who look at it.
func (a *App) newPage() *page.Page {
	a.fleet = newFleetView()
	return page.New(page.Options{
		Status:    a.status,
		Set:       a.limiter.Set,
		Counts:    a.metrics.Counts,
		Instances: a.fleet.get, Blocks: a.shownBlocks, Changes: a.shownChanges,
		Actions: true,
	})
}

// resolveKey finds the bucket that an id on the page stands for.
func (a *App) resolveKey(id string) (admin.KnownBucket, bool) {
	b, ok := a.page.Keys.Resolve(id)
	if !ok {
		return admin.KnownBucket{}, false
	}
	return admin.KnownBucket{PolicyID: b.Policy, Key: b.Key, Limits: b.Numbers.Limits}, true
}

// startPage begins to follow the service. What ends it runs before the admin server ends, so that viewers do not keep that.
func (a *App) startPage() error {
	ctx, cancel := context.WithCancel(context.Background())
	done := a.serve("page", func() error {
		var fleet sync.WaitGroup
		fleet.Go(func() { a.fleet.run(ctx, a.shownInstances) })
		a.page.Run(ctx)
		fleet.Wait()
		return nil
	})
	a.closers.push(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
	return nil
}
