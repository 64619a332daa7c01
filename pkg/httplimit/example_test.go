package httplimit_test

import (
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"net/netip"

	"github.com/envoy-rls/envoy-rls/pkg/httplimit"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// userOf is who is logged in. In real life a session middleware in front has put the user into the request's context.
func userOf(r *http.Request) (string, bool) {
	user, _, ok := r.BasicAuth()
	return user, ok
}

// A service whose users may pay twice a minute.
func Example() {
	policies, err := policy.LoadTexts(policy.Text{Path: "policies.yaml", Data: []byte(`
policies:
  - id: payments
    match: {route: POST /payments}
    key: [user]
    algorithm: token-bucket
    capacity: 2
    refillPerMinute: 2
    onStoreFailure: closed
`)})
	if err != nil {
		log.Fatal(err)
	}
	limiter := ratelimit.New(ratelimit.Options{Store: memorybackend.New(memorybackend.Options{}), Policies: policies})

	limit, err := httplimit.New(httplimit.Options{
		Limiter:    limiter,
		Attributes: []httplimit.Attribute{httplimit.Route(nil), httplimit.Func("user", userOf)},
	})
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /payments", limit.Handler(http.HandlerFunc(pay)))

	for range 3 {
		r := httptest.NewRequest(http.MethodPost, "/payments", nil)
		r.SetBasicAuth("alice", "secret")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		fmt.Println(w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// 200 "payments";r=1;t=30
	// 200 "payments";r=0;t=30
	// 429 "payments";r=0;t=30
}

func pay(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "paid") }

// Behind a load balancer that writes X-Forwarded-For, in networks of its own.
func ExampleProxies() {
	proxies := httplimit.Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = "10.1.0.9:40000"
	r.Header.Set("X-Forwarded-For", "1.1.1.1, 203.0.113.7, 10.1.0.8")
	fmt.Println(proxies.Client(r))
	r.RemoteAddr = "198.51.100.1:40000" // not by way of the load balancer
	fmt.Println(proxies.Client(r))
	// Output:
	// 203.0.113.7
	// 198.51.100.1
}
