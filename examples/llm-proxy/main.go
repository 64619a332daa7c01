// Command llm-proxy stands in front of a language model's API and limits how many tokens each API key takes: it reserves an estimate before it
// passes a call on, and commits what the model says it took.
package main

import (
	"context"
	"errors"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
	"github.com/envoy-rls/envoy-rls/pkg/redislimit"
)

// invented is the path of the model that invents its answers.
const invented = "/invented"

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:8000", "address to serve at")
	upstream := flag.String("upstream", "", "URL of the model's API; empty: a model that invents its answers")
	policyFile := flag.String("policies", "policies.yaml", "policy file")
	redis := flag.String("redis", "", "URL of the Redis that all proxies share; empty: count in this process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	set, err := policy.Load(*policyFile)
	if err != nil {
		return err
	}
	store, closeStore, err := openStore(ctx, *redis)
	if err != nil {
		return err
	}
	defer closeStore()
	if *upstream == "" {
		*upstream = "http://" + *listen + invented
	}
	proxy := &Proxy{
		Limiter:  ratelimit.New(ratelimit.Options{Store: store, Policies: set}),
		Upstream: *upstream,
		Client:   newClient(),
	}
	return serve(ctx, *listen, proxy)
}

// openStore counts on Redis, or in memory.
func openStore(ctx context.Context, url string) (store ratelimit.Store, closeStore func(), err error) {
	if url == "" {
		return memorybackend.New(memorybackend.Options{}), func() {}, nil
	}
	shared, err := redislimit.New(redislimit.Options{Redis: redisbackend.Options{URLs: []string{url}}})
	if err != nil {
		return nil, nil, err
	}
	if err := shared.Start(ctx); err != nil {
		return nil, nil, err
	}
	return shared, shared.Close, nil
}

func serve(ctx context.Context, addr string, proxy *Proxy) error {
	mux := http.NewServeMux()
	mux.Handle("POST /v1/chat/completions", proxy)
	mux.HandleFunc("GET /stats", proxy.ServeStats)
	mux.Handle("POST "+invented+"/", inventedModel(0, 1000))
	server := &http.Server{Addr: addr, Handler: mux, ReadTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	log.Printf("serving at http://%s", addr)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ctx, cancel := context.WithTimeout(context.Background(), upstreamTimeout)
	defer cancel()
	err := server.Shutdown(ctx)
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		return served
	}
	return err
}
