package e2e_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// newRedisLab starts two instances of the service on the shared cluster and an Envoy in front. The store has more time than by default, so that a busy
// machine makes calls late but leaves none to a failure mode.
func newRedisLab(t *testing.T, policies string) *harness.Lab {
	t.Helper()
	cluster := useCluster(t, policies)
	args := []string{"--store", "redis", "--redis-mode", "cluster", "--store-timeout", "3s"}
	for _, url := range cluster.URLs()[:4] {
		args = append(args, "--redis-url", url)
	}
	return newLab(t, setup{policies: writePolicies(t, policies), instances: 2, args: args})
}

// requireSound checks what has to hold after every test: Envoy decided nothing itself, no failure mode answered, and both instances took part.
func requireSound(t *testing.T, lab *harness.Lab) {
	t.Helper()
	unasked, err := lab.Unasked(t.Context())
	require.NoError(t, err)
	require.Zero(t, unasked, "requests that Envoy decided itself")
	for _, at := range lab.Options.Services {
		page, err := harness.Get(t.Context(), "http://"+at.Admin+"/metrics")
		require.NoError(t, err)
		asked := false
		for line := range strings.Lines(page) {
			if !strings.HasPrefix(line, "envoy_rls_decisions_total{") || strings.HasSuffix(line, " 0\n") {
				continue
			}
			require.Regexp(t, `source="(store|cache)"`, line, "a failure mode answered")
			asked = asked || strings.Contains(line, `source="store"`)
		}
		require.True(t, asked, "an instance took no part")
	}
}

// TestExactOnRedisCluster has 200 clients at once call five times each, over two instances that share a cluster: exactly as many as the limit
// are admitted, whichever primary has the key.
func TestExactOnRedisCluster(t *testing.T) {
	const policies = `
domain: edge
policies:
  - {id: bucket, match: {route: "GET /bucket"}, key: [apiKey], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: closed}
  - {id: log, match: {route: "GET /log"}, key: [apiKey], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: closed}
`
	lab := newRedisLab(t, policies)
	keys := []string{"run-8", "run-3", "run-1", "run-0"} // one for each primary, as is checked below
	if os.Getenv("ENVOY_RLS_LONG") == "1" {
		for i := 10; i < 30; i++ {
			keys = append(keys, fmt.Sprintf("run-%d", i))
		}
	}
	for _, key := range keys {
		for _, path := range []string{"/bucket", "/log"} {
			r := harness.Request{Method: "GET", Target: path, Header: []string{"x-api-key: " + key}}
			tally := harness.Crowd(t.Context(), lab.Options.Listen, 200, 5, r)
			require.Equal(t, "100 x 200, 900 x 429", tally.String(), "%s on %s", key, path)
		}
	}
	for _, primary := range primaries(t, shared.cluster) {
		size, err := primary.Do(t.Context(), "DBSIZE")
		require.NoError(t, err)
		require.NotEqualValues(t, 0, size, "%s had no key", primary.Addr())
	}
	requireSound(t, lab)
}

const loginTrio = `
domain: edge
policies:
  - {id: login, match: {route: "POST /auth/login"}, key: [ip, username], algorithm: sliding-log, limit: 10, window: 1h, onStoreFailure: closed}
  - {id: per-username, match: {route: "POST /auth/login"}, key: [username], algorithm: sliding-log, limit: 30, window: 1h, onStoreFailure: closed}
  - {id: per-ip, match: {route: "POST /auth/login"}, key: [ip], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: closed}
`

func loginAs(username string) harness.Request {
	return harness.Request{
		Method: "POST", Target: "/auth/login",
		Header: []string{"content-type: application/json"},
		Body:   fmt.Sprintf(`{"username":%q}`, username),
	}
}

// logIn tries to log in n times from one address, one after another, and returns the statuses in order: 10 x 200, 2 x 429.
func logIn(t *testing.T, lab *harness.Lab, from, username string, n int) string {
	t.Helper()
	statuses, err := attempts(t.Context(), lab, from, n, func(int) harness.Request { return loginAs(username) })
	require.NoError(t, err)
	return statuses
}

// TestLoginTrioOnRedisCluster has three policies whose keys are on different primaries: each denies alone, and what it denies is charged to
// none of the others.
func TestLoginTrioOnRedisCluster(t *testing.T) {
	lab := newRedisLab(t, loginTrio)

	t.Run("one password, one machine", func(t *testing.T) {
		require.Equal(t, "10 x 200, 5 x 429", logIn(t, lab, "127.0.0.2", "ann", 15))
		// The five denials cost the user and the address nothing.
		require.Equal(t, "10 x 200, 1 x 429", logIn(t, lab, "127.0.0.3", "ann", 11))
		require.Equal(t, "10 x 200, 1 x 429", logIn(t, lab, "127.0.0.4", "ann", 11))
		require.Equal(t, "1 x 429", logIn(t, lab, "127.0.0.5", "ann", 1), "30 in all")
	})
	t.Run("one password, many machines", func(t *testing.T) {
		tally := harness.Spread(t.Context(), lab.Options.Listen, 200, loginAs("victim"))
		require.Equal(t, "30 x 200, 170 x 429", tally.String())
	})
	t.Run("one machine, many users", func(t *testing.T) {
		for i := range 10 {
			require.Equal(t, "10 x 200", logIn(t, lab, "127.0.0.6", fmt.Sprint("user-", i), 10))
		}
		require.Equal(t, "1 x 429", logIn(t, lab, "127.0.0.6", "user-10", 1), "100 in all")
		require.Equal(t, "10 x 200", logIn(t, lab, "127.0.0.7", "user-10", 10), "which cost user-10 nothing")
	})
	requireSound(t, lab)
}

// TestAttackerCannotLockOutAUserOnRedisCluster: while somebody goes on guessing one user's password from one address, long denied, the user logs in
// from another.
func TestAttackerCannotLockOutAUserOnRedisCluster(t *testing.T) {
	lab := newRedisLab(t, loginTrio)
	// Of per-username's 30, ten are the attacker's and ten the user's; the rest covers what the attacker's open calls hold for a moment.
	attack := harness.StartLoad(lab.Options.Listen, 8, loginAs("victim"))
	defer attack.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, harness.Until(ctx, "the attacker to have all it can get", func() error {
		if _, logins := lab.Upstream.Seen(); logins != 10 {
			return fmt.Errorf("%d logins", logins)
		}
		return nil
	}))
	require.Equal(t, "10 x 200, 2 x 429", logIn(t, lab, "127.0.0.2", "victim", 12))
	tally := attack.Stop()
	require.Equal(t, 10, tally.Status(200))
	require.Positive(t, tally.Status(429))
	require.Equal(t, fmt.Sprintf("10 x 200, %d x 429", tally.Status(429)), tally.String(), "no other answer")
	requireSound(t, lab)
}
