// Command envoy-rls is a rate limit service for Envoy: it answers ShouldRateLimit by the policies of a file.
package main

import "os"

// version is set by the linker.
var version = ""

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
