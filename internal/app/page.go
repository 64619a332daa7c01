package app

import (
	"context"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/page"
)

// newPage makes what follows the service for those who look at it.
func (a *App) newPage() *page.Page {
	return page.New(page.Options{
		Status: a.status,
		Set:    a.limiter.Set,
		Counts: a.metrics.Counts,
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
		a.page.Run(ctx)
		return nil
	})
	a.closers.push(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
	return nil
}
