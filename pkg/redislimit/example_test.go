package redislimit_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/redislimit"
)

// A limiter on Redis. redisURL is redis://redis.example.com:6379, say.
func Example() {
	file, err := policy.Parse("policies.yaml", []byte(`
policies:
  - {id: calls, key: [user], algorithm: token-bucket, capacity: 100, refillPerMinute: 100, onStoreFailure: local}
`))
	if err != nil {
		log.Fatal(err)
	}
	policies, err := policy.NewSet([]*policy.File{file})
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	store, err := redislimit.New(redislimit.Options{Redis: redisbackend.Options{
		URLs:    []string{redisURL},
		Timeout: time.Second, // the default is 5 ms, which a machine that is busy with tests may exceed
	}})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Start(ctx); err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	limiter := ratelimit.New(ratelimit.Options{Store: store, Policies: policies})

	decision, err := limiter.Check(ctx, ratelimit.Request{Attributes: map[string]string{"user": "alice"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(decision.Allowed, decision.Checks[0].Result.Source)
	// Output:
	// true store
}
