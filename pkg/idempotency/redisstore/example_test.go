package redisstore_test

import (
	"log"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency/redisstore"
)

// All instances of a service share the answers on one Redis: a server, behind Sentinel, or a cluster.
func Example() {
	client := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs:                 []string{"redis.example.com:6379"},
		ContextTimeoutEnabled: true, // or a slow Redis holds requests up
	})
	defer client.Close()
	store, err := redisstore.New(redisstore.Options{Client: client, Prefix: "payments:"})
	if err != nil {
		log.Fatal(err)
	}
	middleware(store)
}

func middleware(idempotency.Store) {}
