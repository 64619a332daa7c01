package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/redislimit"
)

// newLimiter makes a limiter by a policy file, with its counts in Redis. While Redis does not answer, policies say what happens. stop ends it all.
func newLimiter(policies, redisURL string, timeout time.Duration) (limiter *ratelimit.Limiter, stop func(), err error) {
	set, err := policy.Load(policies)
	if err != nil {
		return nil, nil, fmt.Errorf("policies:\n%w", err)
	}
	redisbackend.Quiet() // go-redis would write to standard error
	store, err := redislimit.New(redislimit.Options{
		Redis:    redisbackend.Options{URLs: []string{redisURL}, Timeout: timeout},
		OnAbsent: func(err error) { log.Printf("payments: Redis does not answer yet: %v", err) },
	})
	if err != nil {
		return nil, nil, err
	}
	if err := store.Start(context.Background()); err != nil {
		return nil, nil, err
	}
	return ratelimit.New(ratelimit.Options{Store: store, Policies: set}), store.Close, nil
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
