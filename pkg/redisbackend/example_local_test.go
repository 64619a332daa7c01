package redisbackend_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/fallback"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// While Redis does not answer, a policy with onStoreFailure: local lets each instance go on with its share of the limit. For that the
// fallback needs a store of its own, and has to know how many instances there are: they tell each other by way of Redis.
func Example_local() {
	file, err := policy.Parse("policies.yaml", []byte(`
policies:
  - {id: calls, key: [user], algorithm: token-bucket, capacity: 100, refillPerDay: 100, onStoreFailure: local}
`))
	if err != nil {
		log.Fatal(err)
	}
	policies, err := policy.NewSet([]*policy.File{file})
	if err != nil {
		log.Fatal(err)
	}
	redis, err := redisbackend.New(redisbackend.Options{URLs: []string{redisURL}, Timeout: time.Second})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	if err := redis.Start(ctx); err != nil {
		log.Fatal(err)
	}

	const life = 6 * time.Second // an instance that has said nothing for so long is gone
	fleet := fallback.NewFleet(fallback.FleetOptions{
		ID:   rand.Text()[:16], // no other instance has it
		Life: life,
		Beat: func(ctx context.Context, id string) ([]string, error) { return redis.Beat(ctx, id, life) },
	})
	fleet.Beat(ctx)
	var running sync.WaitGroup
	running.Go(func() { fleet.Run(ctx) })
	answering := fallback.New(fallback.Options{
		Store:      redis,
		Shard:      redis.Node, // a cluster's nodes fail one by one
		OnWithheld: redis.Relearn,
		Local:      memorybackend.New(memorybackend.Options{}),
		Instances:  fleet.Instances,
	})
	limiter := ratelimit.New(ratelimit.Options{Store: answering, Policies: policies})

	decision, err := limiter.Check(ctx, ratelimit.Request{Attributes: map[string]string{"user": "bob"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(decision.Allowed, decision.Checks[0].Result.Source, fleet.Met(), fleet.Instances().Count)

	stop()
	running.Wait()
	answering.Close()
	redis.Close()
	// Output:
	// true store true 1
}
