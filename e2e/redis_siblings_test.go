package e2e_test

import (
	"fmt"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// siblings have one small bucket beside large ones: of the same tenant, and so in its slot, and of an address, in another one.
const siblings = `
domain: edge
policies:
  - {id: small, match: {kind: [bucket, bucket-across]}, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: closed}
  - {id: small-log, match: {kind: [log, log-across]}, key: [tenant], algorithm: sliding-log, limit: 100, window: 1h, onStoreFailure: closed}
  - {id: large, match: {kind: [bucket, log]}, key: [tenant], algorithm: token-bucket, capacity: 10000, refillPerDay: 3, onStoreFailure: closed}
  - {id: large-log, match: {kind: [bucket, log]}, key: [tenant], algorithm: sliding-log, limit: 10000, window: 1h, onStoreFailure: closed}
  - {id: large-ip, match: {kind: [bucket-across, log-across]}, key: [ip], algorithm: token-bucket, capacity: 10000, refillPerDay: 3, onStoreFailure: closed}
  - {id: large-log-user, match: {kind: [bucket-across, log-across]}, key: [username], algorithm: sliding-log, limit: 10000, window: 1h, onStoreFailure: closed}
`

// TestSiblingsAreChargedWhatWasAdmitted: 200 clients at once drain one bucket of a request, and go on. The others are charged exactly what was
// admitted, in the same slot and in other slots.
func TestSiblingsAreChargedWhatWasAdmitted(t *testing.T) {
	cluster := useCluster(t, siblings)
	s := openStore(t, cluster.URLs())
	defer s.Close()
	f := startFleet(t, fleetSetup{policies: siblings, instances: 3, urls: cluster.URLs(), timeout: 2 * time.Second})
	calls := 5
	if long() {
		calls = 50
	}
	for _, kind := range []string{"bucket", "log", "bucket-across", "log-across"} {
		got := crowd(f, 200, calls, harness.Attributes("kind", kind, "tenant", kind, "remote_address", "192.0.2.1", "username", kind))
		t.Logf("%s: %v", kind, got)
		require.Equal(t, fmt.Sprintf("100 allowed, %d denied", 200*calls-100), got.String(), kind)
		tenant := policy.Part{Name: "tenant", Value: kind}
		charged := map[string]policy.Key{"large": policy.NewKey(tenant, "large"), "large-log": policy.NewKey(tenant, "large-log")}
		want := 100.0
		if kind == "bucket-across" || kind == "log-across" {
			charged = map[string]policy.Key{
				"large-ip":       policy.NewKey(policy.Part{Name: "ip", Value: "192.0.2.1"}, "large-ip"),
				"large-log-user": policy.NewKey(policy.Part{Name: "username", Value: kind}, "large-log-user"),
			}
		}
		for id, key := range charged {
			want := want
			if kind == "log-across" && id == "large-ip" {
				want = 200 // the address is that of the other kind, too
			}
			b := ratelimit.Bucket{Key: key, Limits: limitsOf(t, siblings, id)}
			require.Eventually(t, func() bool { // what is given back is not waited for
				return int(look(t, s, b).Remaining) == 10_000-int(want)
			}, patience, 10*time.Millisecond, "%s is charged %v, want %v", key, 10_000-look(t, s, b).Remaining, want)
		}
	}
	require.Zero(t, f.unanswered(t))
	require.Zero(t, f.sum(t, "envoy_rls_store_undos_total", `result="failed"`))
	require.Positive(t, f.sum(t, "envoy_rls_store_undos_total", `result="begun"`), "nothing had to be given back")
}

// TestAttackerCannotSpendAUsersAttempts: somebody tries one user's password 2,000 times a second (in the short form 200) from one address, over every
// instance, and is long denied. From another address the user gets the 10 attempts that everybody has. Both are charged for what was admitted.
func TestAttackerCannotSpendAUsersAttempts(t *testing.T) {
	cluster := useCluster(t, loginTrio)
	f := startFleet(t, fleetSetup{policies: loginTrio, instances: 3, urls: cluster.URLs(), timeout: 2 * time.Second})
	s := openStore(t, cluster.URLs())
	defer s.Close()
	// Of per-username's 30, ten are the attacker's and ten the user's; the rest covers what the attacker's open calls hold for a moment. A slow machine has
	// more of them open.
	rate, users := 200, 1
	if long() {
		rate, users = 2000, 10
	}
	for user := range users {
		name := fmt.Sprint("victim-", user)
		login := func(from string) *rls.RateLimitRequest {
			return harness.Attributes("route", "POST /auth/login", "remote_address", from, "username", name)
		}
		attacker, own := login(fmt.Sprint("198.51.100.", user)), login(fmt.Sprint("203.0.113.", user))
		attack := startStream(t, f, rate, func(int) *rls.RateLimitRequest { return attacker })
		require.Eventually(t, func() bool { return attack.calls() > rate/2 }, patience, time.Millisecond)
		mine := &outcome{}
		for n := range 12 {
			mine.call(f, n, own)
			time.Sleep(50 * time.Millisecond) // all the while what is known of denials grows old, and the store is asked again
		}
		attack.stop()
		t.Logf("attacker at %.0f/s: %v; user: %v", attack.perSecond(), &attack.outcome, mine)
		require.Equal(t, "10 allowed, 2 denied", mine.String())
		require.Equal(t, fmt.Sprintf("10 allowed, %d denied", attack.denied), attack.String())
		b := ratelimit.Bucket{Key: policy.NewKey(policy.Part{Name: "username", Value: name}, "per-username"), Limits: limitsOf(t, loginTrio, "per-username")}
		require.Eventually(t, func() bool { return look(t, s, b).Remaining == 10 }, patience, 10*time.Millisecond, "charged otherwise")
		if long() {
			require.Greater(t, attack.perSecond(), 0.95*float64(rate))
		}
	}
	require.Zero(t, f.unanswered(t))
}
