package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/app"
)

// TestWhereTracesGo: the flag wins, then its own variable, then those that all programs with OpenTelemetry share.
func TestWhereTracesGo(t *testing.T) {
	const all, traces, own = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "ENVOY_RLS_OTLP_ENDPOINT"
	tests := map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"nowhere":             {},
		"of all signals":      {env: map[string]string{all: "http://all:4317"}, want: "http://all:4317"},
		"of traces":           {env: map[string]string{all: "http://all:4317", traces: "http://traces:4317"}, want: "http://traces:4317"},
		"own":                 {env: map[string]string{all: "http://all:4317", own: "http://own:4317"}, want: "http://own:4317"},
		"flag":                {env: map[string]string{all: "http://all:4317", own: "http://own:4317"}, args: []string{"--otlp-endpoint", "http://flag:4317"}, want: "http://flag:4317"},
		"none by the flag":    {env: map[string]string{all: "http://all:4317"}, args: []string{"--otlp-endpoint="}},
		"none by its own":     {env: map[string]string{all: "http://all:4317", own: ""}},
		"OpenTelemetry off":   {env: map[string]string{all: "http://all:4317", "OTEL_SDK_DISABLED": "true"}},
		"no exporter":         {env: map[string]string{all: "http://all:4317", "OTEL_TRACES_EXPORTER": "none"}},
		"off, but told where": {env: map[string]string{"OTEL_SDK_DISABLED": "true"}, args: []string{"--otlp-endpoint", "http://flag:4317"}, want: "http://flag:4317"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for key, value := range test.env {
				t.Setenv(key, value)
			}
			var opts app.Options
			cmd := newServe()
			cmd.ResetFlags()
			traceFlags(cmd, &opts)
			require.NoError(t, cmd.ParseFlags(test.args))
			require.NoError(t, fromEnv("otlp-endpoint", "trace-ratio")(cmd, nil))
			endpointFromEnv(cmd, &opts.Trace)
			require.Equal(t, test.want, opts.Trace.Endpoint)
			require.Equal(t, 0.01, opts.Trace.Ratio)
		})
	}
}
