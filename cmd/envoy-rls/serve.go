package main

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/internal/gcpace"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

var serveFlags = []string{
	"policy-source", "policies", "policy-dsn-file", "policy-kept-file", "grpc-addr", "admin-addr", "debug-addr", "grpc-tls-cert-file", "grpc-tls-key-file", "grpc-tls-client-ca-file",
	"admin-tls-cert-file", "admin-tls-key-file", "admin-tls-client-ca-file", "admin-token-file", "store", "max-buckets", "redis-url", "redis-mode", "redis-pool-size",
	"redis-password-file", "redis-sentinel-password-file", "redis-ca-file", "redis-cert-file", "redis-key-file", "store-timeout", "instances", "drain-delay", "otlp-endpoint", "trace-ratio", "log-format", "log-level",
}

func newServe() *cobra.Command {
	var opts app.Options
	source := choice{[]string{"file", "postgres"}, "file"}
	format := choice{[]string{"text", "json"}, "text"}
	level := choice{[]string{"debug", "info", "warn", "error"}, "info"}
	store := choice{[]string{"memory", "redis"}, "memory"}
	mode := choice{[]string{"auto", "standalone", "sentinel", "cluster"}, ""}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Answer Envoy's rate limit calls",
		Long: `Answers Envoy's rate limit calls by the policies of a file, and follows the file: a change acts within seconds, a file with
faults leaves the policies that were in force. With --policy-source postgres it follows the versions that "envoy-rls policies" makes.

Each flag can also be given in the environment: --grpc-addr as ENVOY_RLS_GRPC_ADDR, and so on. The flag wins.

SIGTERM and SIGINT stop the service: it reports NOT_SERVING, goes on answering for the drain delay, then finishes the calls under
way. A second one ends the delay and cuts off what is not answered in a quarter of a second. SIGHUP reads the policies again.

The log goes to standard error. With --log-format json, so does what keeps the service from starting or going on, as a line of the
log; only a wrong command line or environment is told in plain text.`,
		Example: `  envoy-rls serve --policies config/policies.yaml
  envoy-rls serve --policies /etc/envoy-rls --log-format json
  ENVOY_RLS_GRPC_ADDR=127.0.0.1:8081 envoy-rls serve`,
		Args:    cobra.NoArgs,
		PreRunE: fromEnv(serveFlags...),
		RunE: func(cmd *cobra.Command, _ []string) error {
			opts.PolicySource, opts.Store, opts.Redis.Mode = source.value, store.value, mode.value
			opts.Version, opts.Commit = build()
			endpointFromEnv(cmd, &opts.Trace)
			opts.Log = newLog(cmd.ErrOrStderr(), format.value, level.value)
			return logged(serve(cmd, opts), opts.Log, format.value)
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	policyFlags(cmd, &opts, &source)
	flags.StringVar(&opts.GRPCAddr, "grpc-addr", ":8081", "where Envoy calls")
	flags.StringVar(&opts.AdminAddr, "admin-addr", ":8080", "health, metrics and status over HTTP")
	flags.StringVar(&opts.DebugAddr, "debug-addr", "127.0.0.1:6060", "profiles (pprof), on loopback only; empty for none")
	securityFlags(cmd, &opts)
	flags.Var(&store, "store", "where buckets live")
	flags.IntVar(&opts.MaxBuckets, "max-buckets", 4_000_000, "how many buckets the memory store keeps")
	redisFlags(cmd, &opts, &mode)
	flags.DurationVar(&opts.DrainDelay, "drain-delay", 2*time.Second, "how long to go on answering once told to stop")
	traceFlags(cmd, &opts)
	flags.Var(&format, "log-format", "form of the log lines")
	flags.Var(&level, "log-level", "least level to log; debug has a line for each denial")
	for name, words := range map[string][]string{"policy-source": source.words, "store": store.words, "redis-mode": mode.words, "log-format": format.words, "log-level": level.words} {
		complete(cmd, name, words)
	}
	return cmd
}

// complete makes shells offer words for a flag.
func complete(cmd *cobra.Command, flag string, words []string) {
	if err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // no such flag
	}
}

func serve(cmd *cobra.Command, opts app.Options) error {
	service, err := app.New(opts)
	if err != nil {
		return exitError{exitUsage, err}
	}
	if unknown := unknownVariables(os.Environ(), serveFlags); len(unknown) > 0 {
		opts.Log.Warn("environment variables that set no flag", "names", strings.Join(unknown, " "))
	}
	limit, err := gcpace.LimitMemory()
	if err != nil {
		opts.Log.Warn("the memory limit is not known", "error", err)
	} else if limit > 0 {
		opts.Log.Info("memory is limited", "bytes", limit)
	}
	signals := make(chan os.Signal, 8) // read at once, whatever the service is doing
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	err = service.Run(cmd.Context(), signals)
	var faults policy.Faults
	switch {
	case err == nil:
		return nil
	case errors.As(err, &faults):
		return faulty(faults)
	}
	return failed(err)
}

// logged puts what ended the service into a log that programs read: they would stumble over plain text.
func logged(err error, log *slog.Logger, format string) error {
	var known exitError
	if format != "json" || !errors.As(err, &known) || known.code == exitUsage {
		return err
	}
	log.Error("service failed", "error", known.Error())
	return errors.Join(err, errLogged)
}

func newLog(w io.Writer, format, level string) *slog.Logger {
	var least slog.Level
	_ = least.UnmarshalText([]byte(level)) // one of the words of the flag
	options := &slog.HandlerOptions{Level: least}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
