package app

import (
	"context"
	"log/slog"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// BareAndWatched are two services on the store and the policies of an App that is not started: with nothing that watches, and with all of it.
func BareAndWatched(ctx context.Context, a *App) (bare, watched *rls.Service, err error) {
	if _, err := a.source.Load(ctx); err != nil {
		return nil, nil, err
	}
	bare = rls.NewService(ratelimit.New(ratelimit.Options{Store: a.store, Policies: a.limiter.Set()}), rls.Hooks{})
	bare.Prepare(a.limiter.Set())
	return bare, a.service, nil
}

// OnRedisCall is what watches calls to Redis.
func OnRedisCall() func(*redisbackend.Call) {
	a := &App{log: slog.Default()}
	a.metrics = metrics.New(metrics.Options{Shared: func() metrics.Shared { return metrics.Shared{} }})
	return a.redisOptions().OnCall
}
