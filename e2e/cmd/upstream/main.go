// Command upstream is the server behind Envoy in docker-compose.yml.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/envoy-rls/envoy-rls/e2e/upstream"
)

func main() {
	addr := flag.String("addr", ":9000", "listen on this host:port")
	flag.Parse()
	server := &http.Server{Addr: *addr, Handler: &upstream.Server{}, ReadHeaderTimeout: 10 * time.Second}
	fmt.Fprintln(os.Stderr, "upstream:", server.ListenAndServe())
	os.Exit(1)
}
