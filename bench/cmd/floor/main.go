// Command floor answers rate limit calls without deciding anything. It is a program of its own, with nothing in it but that, so that what it spends is
// what any such server must.
package main

import (
	"context"
	"flag"
	"log"
	"net"

	"github.com/envoy-rls/envoy-rls/internal/bench/floor"
)

func main() {
	addr := flag.String("grpc-addr", "127.0.0.1:8081", "where to answer")
	flag.Parse()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(floor.Serve(context.Background(), l))
}
