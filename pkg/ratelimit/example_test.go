package ratelimit_test

import (
	"context"
	"fmt"
	"log"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// parse reads policies that stand in the program. Those in files are read by policy.Load, and kept up to date by package
// policysource.
func parse(text string) *policy.Set {
	file, err := policy.Parse("policies.yaml", []byte(text))
	if err != nil {
		log.Fatal(err) // names line and column
	}
	set, err := policy.NewSet([]*policy.File{file})
	if err != nil {
		log.Fatal(err)
	}
	return set
}

// A limiter within one process: at most 3 payments a user at once, and one more every 20 s.
func Example() {
	policies := parse(`
policies:
  - id: payments
    match: {route: POST /payments}
    key: [user]
    algorithm: token-bucket
    capacity: 3
    refillPerMinute: 3
    onStoreFailure: closed
`)
	limiter := ratelimit.New(ratelimit.Options{
		Store:    memorybackend.New(memorybackend.Options{}),
		Policies: policies,
	})

	for range 4 {
		decision, err := limiter.Check(context.Background(), ratelimit.Request{
			Attributes: map[string]string{"user": "alice", "route": "POST /payments"},
		})
		switch {
		case err != nil:
			fmt.Println("the request was made wrongly:", err)
		case decision.Allowed:
			fmt.Println("go ahead")
		default:
			wait, ever := decision.Wait()
			fmt.Println("denied; try again:", ever, "within 20 s:", wait.Seconds() <= 20)
		}
	}
	// Output:
	// go ahead
	// go ahead
	// go ahead
	// denied; try again: true within 20 s: true
}

// Policies can be replaced at any time, and buckets keep what was spent.
func ExampleLimiter_Use() {
	two := parse("policies:\n  - {id: calls, key: [user], algorithm: token-bucket, capacity: 2, refillPerDay: 1, onStoreFailure: open}\n")
	none := parse("policies:\n  - {id: calls, key: [user], algorithm: token-bucket, capacity: 0, refillPerDay: 1, onStoreFailure: open}\n")
	limiter := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{}), Policies: two})
	call := func() {
		decision, err := limiter.Check(context.Background(), ratelimit.Request{Attributes: map[string]string{"user": "alice"}})
		fmt.Println(err == nil && decision.Allowed)
	}

	call()
	limiter.Use(none)
	call()
	limiter.Use(two)
	call()
	call()
	// Output:
	// true
	// false
	// true
	// false
}

// The tokens that a language model takes are known when it has answered. Until then an estimate is charged, so that many calls at once
// cannot all pass.
func ExampleLimiter_Reserve() {
	limiter := ratelimit.New(ratelimit.Options{
		Store: memorybackend.New(memorybackend.Options{}),
		// charge: postpaid gives the bucket an overdraft: what a call has used is used, and is owed.
		Policies: parse(`
policies:
  - id: model-tokens
    key: [tenant]
    algorithm: token-bucket
    capacity: 1000
    refillPerDay: 1000
    charge: postpaid
    overdraft: 500
    onStoreFailure: open
`),
	})
	ctx := context.Background()
	ask := func(estimate, actual uint64) {
		reservation, err := limiter.Reserve(ctx, ratelimit.Request{Attributes: map[string]string{"tenant": "acme"}, Cost: estimate})
		if err != nil {
			log.Fatal(err)
		}
		if !reservation.Decision.Allowed {
			fmt.Println("no room for", estimate)
			return
		}
		defer reservation.Cancel(ctx) // should the model fail; does nothing after Commit
		// … ask the model, whose answer says what it took …
		settled, err := reservation.Commit(ctx, actual)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("took %d, of which %d found no room\n", actual, settled.Uncharged())
	}

	ask(800, 300)  // 700 left
	ask(800, 800)  //
	ask(600, 1300) // the bucket pays 700, and owes 500
	ask(1, 1)      // until it has been refilled
	// Output:
	// took 300, of which 0 found no room
	// no room for 800
	// took 1300, of which 100 found no room
	// no room for 1
}
