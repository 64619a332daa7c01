package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/app"
)

// redisFlags say where the store is if it is Redis.
func redisFlags(cmd *cobra.Command, opts *app.Options, mode *choice) {
	flags, r := cmd.Flags(), &opts.Redis
	flags.Var((*urls)(&r.URLs), "redis-url", "redis://, rediss:// or unix:// URL; again for each further node or sentinel")
	flags.Var(mode, "redis-mode", "what the URLs lead to (default auto: found out)")
	flags.IntVar(&r.PoolSize, "redis-pool-size", 0, "connections to each node (default 3)")
	flags.StringVar(&r.PasswordFile, "redis-password-file", "", "where the password is, read for each new connection")
	flags.StringVar(&r.SentinelPasswordFile, "redis-sentinel-password-file", "", "where the sentinels' password is")
	flags.StringVar(&r.CAFile, "redis-ca-file", "", "certificates to trust (PEM) instead of the system's")
	flags.StringVar(&r.CertFile, "redis-cert-file", "", "certificate to show (PEM)")
	flags.StringVar(&r.KeyFile, "redis-key-file", "", "its key (PEM)")
	flags.DurationVar(&opts.StoreTimeout, "store-timeout", 5*time.Millisecond, "how long a decision waits for Redis")
	flags.IntVar(&opts.Instances, "instances", 0, "instances there are at the least while Redis has not told (0: this one)")
}

// urls is a flag that may be given several times, or several URLs at once with space between them. It shows none of them: there may
// be passwords in it.
type urls []string

// String implements cobra's flag value.
func (u *urls) String() string {
	if len(*u) == 0 {
		return ""
	}
	return fmt.Sprintf("%d given", len(*u))
}

// Type implements cobra's flag value.
func (u *urls) Type() string { return "URL" }

// Set implements cobra's flag value.
func (u *urls) Set(text string) error {
	*u = append(*u, strings.Fields(text)...)
	return nil
}
