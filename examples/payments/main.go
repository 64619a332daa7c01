// Command payments is a service that lets each user initiate five payments an hour, whichever of its instances the requests reach.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	listen := flag.String("listen", "127.0.0.1:9001", "where to serve HTTP")
	redis := flag.String("redis-url", "redis://127.0.0.1:6379", "where the counts are")
	timeout := flag.Duration("redis-timeout", 50*time.Millisecond, "how long a request waits for Redis")
	policies := flag.String("policies", "service.yaml", "policy file")
	flag.Parse()

	limiter, stop, err := newLimiter(*policies, *redis, *timeout)
	if err != nil {
		return err
	}
	defer stop()
	handler, err := newHandler(limiter, *listen)
	if err != nil {
		return err
	}
	return serve(*listen, handler)
}

// serve serves until the process is told to end.
func serve(listen string, handler http.Handler) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer cancel()
	server := &http.Server{Addr: listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.ListenAndServe() }()
	log.Printf("payments: listening on %s", listen)
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	ctx, cancel = context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := server.Shutdown(ctx)
	if served := <-served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
