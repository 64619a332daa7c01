package idempotency_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

type sessionKey struct{}

// userOf is the user that the session middleware, which runs before, has put into the context.
func userOf(r *http.Request) (string, bool) {
	user, ok := r.Context().Value(sessionKey{}).(string)
	return user, ok
}

// A user may make three payments an hour. A client that lost the answer to its payment repeats it: the payment is made once, and counted once.
func Example() {
	limit, err := httplimit.New(httplimit.Options{
		Limiter:    limiterOf(`policies: [{id: payments, key: [user], algorithm: sliding-log, limit: 3, window: 1h, onStoreFailure: closed}]`),
		Attributes: []httplimit.Attribute{httplimit.Func("user", userOf)},
	})
	if err != nil {
		log.Fatal(err)
	}
	retries, err := idempotency.New(idempotency.Options{
		Store:   idempotency.NewMemory(idempotency.MemoryOptions{}),
		Account: userOf,
		Limit:   limit.Handler,
		Tell:    limit.Tell,
	})
	if err != nil {
		log.Fatal(err)
	}
	made := 0
	pay := func(w http.ResponseWriter, _ *http.Request) {
		made++
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "payment %d", made)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", retries.Handler(http.HandlerFunc(pay)))

	for _, key := range []string{`"a"`, `"a"`, `"a"`, `"b"`} {
		r := httptest.NewRequest(http.MethodPost, "/payments", strings.NewReader(`{"to":"bob","amount":5}`))
		r = r.WithContext(context.WithValue(r.Context(), sessionKey{}, "alice"))
		r.Header.Set("Idempotency-Key", key)
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, r)
		left, _, _ := strings.Cut(answer.Header().Get("RateLimit"), ";t")
		fmt.Printf("%s, %s, replayed: %t\n", answer.Body, left, answer.Header().Get("Idempotent-Replayed") == "true")
	}
	// Output:
	// payment 1, "payments";r=2, replayed: false
	// payment 1, "payments";r=2, replayed: true
	// payment 1, "payments";r=2, replayed: true
	// payment 2, "payments";r=1, replayed: false
}

func limiterOf(policies string) *ratelimit.Limiter {
	file, err := policy.Parse("policies.yaml", []byte(policies))
	if err != nil {
		log.Fatal(err)
	}
	set, err := policy.NewSet([]*policy.File{file})
	if err != nil {
		log.Fatal(err)
	}
	return ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{}), Policies: set})
}
