package redisbackend_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// redisURL is where the example's Redis is: redis://redis.example.com:6379, say.
var redisURL string

// Two instances of a service share what a user may do, by way of one Redis. When Redis does not answer in time, the fallback
// does, as the policy's onStoreFailure says.
func Example() {
	file, err := policy.Parse("policies.yaml", []byte(`
policies:
  - {id: payments, key: [user], algorithm: sliding-log, limit: 3, window: 1h, onStoreFailure: closed}
`))
	if err != nil {
		log.Fatal(err)
	}
	policies, err := policy.NewSet([]*policy.File{file})
	if err != nil {
		log.Fatal(err)
	}

	instance := func() (limiter *ratelimit.Limiter, stop func()) {
		redis, err := redisbackend.New(redisbackend.Options{
			URLs:    []string{redisURL},
			Timeout: time.Second, // the default is 5 ms, which a machine that is busy with tests may exceed
		})
		if err != nil {
			log.Fatal(err)
		}
		if err := redis.Start(context.Background()); err != nil {
			log.Fatal(err)
		}
		answering := fallback.New(fallback.Options{Store: redis})
		return ratelimit.New(ratelimit.Options{Store: answering, Policies: policies}), func() {
			answering.Close()
			redis.Close()
		}
	}
	one, stop := instance()
	defer stop()
	two, stop := instance()
	defer stop()

	for _, limiter := range []*ratelimit.Limiter{one, two, one, two} {
		decision, err := limiter.Check(context.Background(), ratelimit.Request{Attributes: map[string]string{"user": "alice"}})
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(decision.Allowed)
	}
	// Output:
	// true
	// true
	// true
	// false
}
