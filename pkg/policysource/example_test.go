package policysource_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"sync"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policysource"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// A limiter whose policies follow a file.
func Example() {
	dir, err := os.MkdirTemp("", "policies")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "policies.yaml")
	write := func(capacity int) {
		text := fmt.Sprintf("policies:\n  - {id: calls, key: [user], algorithm: token-bucket, capacity: %d, refillPerDay: 1, onStoreFailure: open}\n", capacity)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			log.Fatal(err)
		}
	}
	write(20)

	ctx, cancel := context.WithCancel(context.Background())
	limiter := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{})})
	changed := make(chan struct{}, 2)
	use := func(set *policy.Set) {
		limiter.Use(set)
		changed <- struct{}{}
	}
	source := policysource.New(policysource.Options{Path: path, OnSet: use, OnError: func(err error) { log.Print(err) }})
	if _, err := source.Load(ctx); err != nil {
		log.Fatal(err) // refuse to start
	}
	var running sync.WaitGroup
	running.Go(func() { _ = source.Run(ctx) })

	<-changed
	fmt.Println(limiter.Set().Policies()[0].Numbers.Capacity)
	write(30)
	<-changed
	fmt.Println(limiter.Set().Policies()[0].Numbers.Capacity)

	cancel()
	running.Wait()
	// Output:
	// 20
	// 30
}
