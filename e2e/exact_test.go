package e2e_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// TestExactThroughEnvoy has 200 clients at once call five times each, on one key: exactly as many as the limit are admitted, by a token bucket
// and by a sliding log, and Envoy let none through for want of an answer.
func TestExactThroughEnvoy(t *testing.T) {
	lab := newLab(t, setup{policies: writePolicies(t, `
domain: edge
policies:
  - {id: bucket, match: {route: "GET /bucket"}, key: [apiKey], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: local}
  - {id: log, match: {route: "GET /log"}, key: [apiKey], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: local}
`)})
	runs := 2
	if os.Getenv("ENVOY_RLS_LONG") == "1" {
		runs = 20
	}
	for run := range runs {
		for _, path := range []string{"/bucket", "/log"} {
			r := harness.Request{Method: "GET", Target: path, Header: []string{fmt.Sprintf("x-api-key: run-%d", run)}}
			tally := harness.Crowd(t.Context(), lab.Options.Listen, 200, 5, r)
			require.Equal(t, "100 x 200, 900 x 429", tally.String(), "run %d on %s", run, path)
		}
	}
	unasked, err := lab.Unasked(t.Context())
	require.NoError(t, err)
	require.Zero(t, unasked, "requests that Envoy decided itself")
}
