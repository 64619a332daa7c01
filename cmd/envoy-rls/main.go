// Command envoy-rls is a rate limit service for Envoy: it answers ShouldRateLimit by the policies of a file.
package main

import (
	"os"

	"github.com/envoy-rls/envoy-rls/internal/timerslack"
)

// version is set by the linker.
var version = ""

func main() {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		timerslack.Widen()
	}
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
