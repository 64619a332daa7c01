package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// newLimiter makes a limiter by a policy file, with its counts in Redis. The fallback answers, as the policies say, while Redis does not.
// stop ends it all.
func newLimiter(policies, redisURL string, timeout time.Duration) (limiter *ratelimit.Limiter, stop func(), err error) {
	set, err := policy.Load(policies)
	if err != nil {
		return nil, nil, fmt.Errorf("policies:\n%w", err)
	}
	redisbackend.Quiet() // what fails is told by OnFailure
	redis, err := redisbackend.New(redisbackend.Options{URLs: []string{redisURL}, Timeout: timeout})
	if err != nil {
		return nil, nil, fmt.Errorf("redis: %w", err)
	}
	if err := redis.Start(context.Background()); err != nil { // a Redis that is not there yet is no error
		return nil, nil, fmt.Errorf("redis: %w", err)
	}
	store := fallback.New(fallback.Options{Store: redis, Shard: redis.Node})
	stop = func() {
		store.Close()
		redis.Close()
	}
	return ratelimit.New(ratelimit.Options{Store: store, Policies: set}), stop, nil
}

// newLimit makes the middleware: who pays is known here and not at the gateway.
func newLimit(limiter *ratelimit.Limiter) (*httplimit.Middleware, error) {
	return httplimit.New(httplimit.Options{
		Limiter:    limiter,
		Domain:     "payments",
		Attributes: []httplimit.Attribute{httplimit.Route(nil), httplimit.Func("user", userOf)},
		OnDecision: func(_ *http.Request, d *ratelimit.Decision) {
			for i := range d.Checks {
				if c := &d.Checks[i]; c.Denied() {
					log.Printf("payments: denied by %s, source %v", c.Policy.ID, c.Result.Source)
				}
			}
		},
	})
}
