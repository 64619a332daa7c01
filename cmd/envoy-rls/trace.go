package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/envoy-rls/envoy-rls/internal/app"
)

// traceFlags say where traces go.
func traceFlags(cmd *cobra.Command, opts *app.Options) {
	flags := cmd.Flags()
	flags.StringVar(&opts.Trace.Endpoint, "otlp-endpoint", "", "where traces go: http://HOST:4317 (default: OTEL_EXPORTER_OTLP_ENDPOINT)")
	flags.Float64Var(&opts.Trace.Ratio, "trace-ratio", 0.01, "share of requests to trace where Envoy does not say which")
}

// endpointFromEnv takes the collector from OpenTelemetry's own variables, unless a flag or its variable names one, be it empty.
func endpointFromEnv(cmd *cobra.Command, t *app.TraceOptions) {
	if _, given := os.LookupEnv(envName("otlp-endpoint")); given || cmd.Flags().Changed("otlp-endpoint") {
		return
	}
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return
	}
	if t.Endpoint = os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"); t.Endpoint == "" {
		t.Endpoint = os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT")
	}
}
