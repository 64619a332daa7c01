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
	a.page = a.newPage()
	return a.redisOptions().OnCall
}

// Untraced reports whether decisions are made by the very objects that make them where nothing is known of traces.
func Untraced(a *App) bool {
	return a.handler() == rls.Handler(a.service) && a.tracedStore() == a.store && a.tracedHooks().OnDecision == nil
}

// Answering is what answers calls in a service with these options, which listens to nobody.
func Answering(ctx context.Context, opts Options) (h rls.Handler, stop func()) {
	a, err := New(opts)
	if err == nil {
		_, err = a.source.Load(ctx)
	}
	if err == nil {
		err = a.startTracing()
	}
	if err != nil {
		panic(err)
	}
	return a.handler(), func() { _ = a.closers.close(context.Background()) }
}
