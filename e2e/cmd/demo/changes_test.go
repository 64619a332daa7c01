package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What the service logs, as slog's text form has it, and what the demo shows of it.
func TestChanges(t *testing.T) {
	var out strings.Builder
	c := &changes{out: &out}
	for _, part := range []string{
		"time=2026-01-02T03:04:05.678Z level=INFO msg=\"serving\" grpc=127.0.0.1:8081\n",
		"time=2026-01-02T03:04:05.678Z level=INFO msg=\"policies lo", "aded\" path=config/policies.yaml policies=11\ntime=2026",
		"-01-02T03:04:05.678Z level=ERROR msg=\"policies not loaded; the old ones stay\" version=abc " +
			"error=\"p.yaml:3:5: no field \\\"capcity\\\"\\n    capcity: 20\\n    ^\"\n",
		"time=2026-01-02T03:04:05.678Z level=ERROR msg=\"policies not loaded; the old ones stay\" version=abc error=nothing\n",
		"[2026-01-02 03:04:05.678][1][warning][main] policies are no concern of Envoy's\n",
	} {
		n, err := c.Write([]byte(part))
		require.NoError(t, err)
		require.Equal(t, len(part), n)
	}
	require.Equal(t, `policies loaded path=config/policies.yaml policies=11
policies not loaded; the old ones stay version=abc
  p.yaml:3:5: no field "capcity"
      capcity: 20
      ^
policies not loaded; the old ones stay version=abc
  nothing
`, out.String())
}
