package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// counting are policies that deny nobody here, so that what was charged can be compared with what was admitted.
const counting = `
domain: edge
policies:
  - {id: tokens, key: [tenant], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: closed}
  - {id: log, match: {kind: both}, key: [tenant], algorithm: sliding-log, limit: 100000, window: 1h, onStoreFailure: closed}
`

// charged is what a tenant was charged by a policy of counting.
func charged(t *testing.T, s *redisbackend.Store, tenant, id string) float64 {
	t.Helper()
	l := limitsOf(t, counting, id)
	return l.Capacity - look(t, s, ratelimit.Bucket{Key: ofTenant(id)(tenant), Limits: l}).Remaining
}

// requireCharged checks that a tenant was charged a number of calls. A few tokens of the larger ones may have come back: one in five minutes.
func requireCharged(t *testing.T, s *redisbackend.Store, calls int, tenant string, ids ...string) {
	t.Helper()
	for _, id := range ids {
		require.InDelta(t, calls, charged(t, s, tenant, id), 0.9, "%s of %s", id, tenant)
	}
}

// about makes requests about the tenants in turn, with one more attribute.
func about(name, value string, tenants ...string) func(n int) *rls.RateLimitRequest {
	var requests []*rls.RateLimitRequest
	for _, tenant := range tenants {
		requests = append(requests, harness.Attributes(name, value, "tenant", tenant))
	}
	return func(n int) *rls.RateLimitRequest { return requests[n%len(requests)] }
}

// after lets a stream go on for as long as a number of its calls takes.
func (s *stream) after(t *testing.T, calls int) {
	t.Helper()
	until := s.calls() + calls
	require.Eventually(t, func() bool { return s.calls() >= until }, patience, time.Millisecond)
}

// TestField_ScriptsFlushed: SCRIPT FLUSH every 100 ms costs no decision: none fails, all are counted once.
func TestField_ScriptsFlushed(t *testing.T) {
	cluster := useCluster(t, counting)
	f := startFleet(t, fleetSetup{policies: counting, instances: 2, urls: cluster.URLs(), timeout: 5 * time.Second})
	rate, flushes := 1000, 10
	if long() {
		rate, flushes = 5000, 100
	}
	load := startStream(t, f, rate, about("kind", "both", "flushed"))
	for range flushes {
		for _, primary := range primaries(t, cluster) {
			_, err := primary.Do(t.Context(), "SCRIPT", "FLUSH")
			require.NoError(t, err)
		}
		load.after(t, rate/10)
	}
	load.stop()
	t.Logf("%.0f/s: %v; p99.9 %v", load.perSecond(), &load.outcome, load.quantile(0.999))
	require.Equal(t, fmt.Sprint(len(load.latencies), " allowed, 0 denied"), load.String())
	require.Zero(t, f.unanswered(t))
	require.Zero(t, f.sum(t, "envoy_rls_store_breaker_transitions_total"))
	s := openStore(t, cluster.URLs())
	defer s.Close()
	requireCharged(t, s, load.allowed, "flushed", "tokens", "log")
}

// TestField_SlotHalfMigrated: calls about two buckets of one slot, at 1,000/s, while the slot moves bucket by bucket (ASK, TRYAGAIN, MOVED) and
// halfway stays for a moment: no decision fails, and both are charged once for each call.
func TestField_SlotHalfMigrated(t *testing.T) {
	cluster := useCluster(t, counting)
	f := startFleet(t, fleetSetup{policies: counting, instances: 2, urls: cluster.URLs(), timeout: 5 * time.Second})
	const tenant = "moving"
	first, second := ofTenant("tokens")(tenant).String(), ofTenant("log")(tenant).String()
	slot := harness.Slot(first)
	load := startStream(t, f, 1000, about("kind", "both", tenant))
	load.after(t, 200)
	home, err := cluster.Owner(t.Context(), slot)
	require.NoError(t, err)
	for range 2 { // away and back
		from, err := cluster.Owner(t.Context(), slot)
		require.NoError(t, err)
		to := home
		for _, node := range primaries(t, cluster) {
			if from == home && node != home {
				to = node
			}
		}
		m, err := cluster.MigrateSlot(t.Context(), slot, to)
		require.NoError(t, err)
		load.after(t, 100)
		require.NoError(t, m.Move(t.Context(), first)) // until the other follows, calls about both are told TRYAGAIN
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, m.Move(t.Context(), second)) // ASK
		load.after(t, 200)
		require.NoError(t, m.Finish(t.Context())) // MOVED
		load.after(t, 200)
	}
	load.stop()
	t.Logf("%.0f/s: %v; slowest %v", load.perSecond(), &load.outcome, load.quantile(1))
	require.Equal(t, fmt.Sprint(len(load.latencies), " allowed, 0 denied"), load.String())
	require.Zero(t, f.unanswered(t))
	s := openStore(t, cluster.URLs())
	defer s.Close()
	requireCharged(t, s, load.allowed, tenant, "tokens", "log")
}

// TestField_ClusterFailover: CLUSTER FAILOVER at 1,000/s, in the long form on every shard in turn: what is not counted meanwhile is answered by the failure mode,
// and nothing is left to it once the new primary is known, without a restart.
func TestField_ClusterFailover(t *testing.T) {
	cluster := useCluster(t, counting)
	f := startFleet(t, fleetSetup{policies: counting, instances: 2, urls: cluster.URLs(), timeout: 200 * time.Millisecond})
	var tenants []string
	for _, tenant := range tenantsApart(t, cluster, ofTenant("tokens"), "failover-") {
		tenants = append(tenants, tenant)
	}
	load := startStream(t, f, 1000, about("kind", "one", tenants...))
	load.after(t, 200)
	for i, primary := range primaries(t, cluster) {
		if i > 0 && !long() {
			break
		}
		before, began := f.unanswered(t), time.Now()
		promote(t, cluster, primary)
		agreed, settled := time.Since(began), f.settle(t, load)
		t.Logf("shard %d: new primary after %v; %d not answered, the last after %v", i, agreed, f.unanswered(t)-before, settled.Sub(began))
		if long() {
			require.Less(t, settled.Sub(began), 2*time.Second)
		}
	}
	load.stop()
	unanswered := f.unanswered(t)
	t.Logf("%.0f/s: %v; %d not answered; slowest %v", load.perSecond(), &load.outcome, unanswered, load.quantile(1))
	require.Zero(t, load.errors, "%v", &load.outcome)
	require.Equal(t, unanswered, load.denied, "each denial is a failure mode's")
	require.Zero(t, f.sum(t, "envoy_rls_decisions_total", `outcome="denied"`, `source="store"`))
	s := openStore(t, cluster.URLs())
	defer s.Close()
	sum := 0.0
	for _, tenant := range tenants {
		sum += charged(t, s, tenant, "tokens")
	}
	t.Logf("%.1f charged", sum)
	require.InDelta(t, float64(load.allowed)+float64(unanswered)/2, sum, float64(unanswered)/2+4, "a failover that was asked for loses nothing")
}

// promote makes a replica of a primary the primary, and returns when it is.
func promote(t *testing.T, cluster *redistest.Cluster, primary *redistest.Server) {
	t.Helper()
	replicas, err := cluster.Replicas(t.Context(), primary)
	require.NoError(t, err)
	require.NotEmpty(t, replicas)
	role := func(node *redistest.Server) string {
		info, err := node.Info(t.Context(), "replication")
		require.NoError(t, err)
		return info["role"]
	}
	require.Equal(t, []string{"master", "slave"}, []string{role(primary), role(replicas[0])})
	_, err = replicas[0].Do(t.Context(), "CLUSTER", "FAILOVER")
	require.NoError(t, err)
	require.Eventually(t, func() bool { return role(primary) == "slave" && role(replicas[0]) == "master" }, patience, 5*time.Millisecond)
}

// settle waits until a good number of calls in a row were all decided by the store, and returns when the last one was that was not: now, if
// there is none.
func (f *fleet) settle(t *testing.T, load *stream) time.Time {
	t.Helper()
	last, unanswered := time.Now(), f.unanswered(t)
	for calls := load.calls(); ; {
		if now := f.unanswered(t); now != unanswered {
			last, unanswered, calls = time.Now(), now, load.calls()
		}
		if load.calls() >= calls+500 {
			return last
		}
		require.Less(t, time.Since(last), patience)
		time.Sleep(10 * time.Millisecond)
	}
}

// TestField_OnePrimaryStopped: while one of four primaries stands still, decisions on keys of the others are made as if nothing had happened.
// The long form, with the timeout as shipped, also holds them to time.
func TestField_OnePrimaryStopped(t *testing.T) {
	cluster := useCluster(t, counting)
	// Calls that wait for the stopped primary take up room on their connections, as many as the timeout lets gather.
	setup := fleetSetup{policies: counting, instances: 2, urls: cluster.URLs(), timeout: 2 * time.Second}
	rate, sickRate, lasts := 500, 50, time.Second/2
	if long() {
		setup.timeout, rate, sickRate, lasts = 5*time.Millisecond, 1000, 1000, 20*time.Second
	}
	f := startFleet(t, setup)
	byNode := tenantsApart(t, cluster, ofTenant("tokens"), "stopped-")
	stopped := primaries(t, cluster)[1]
	var healthy []string
	for node, tenant := range byNode {
		if node != stopped {
			healthy = append(healthy, tenant)
		}
	}
	sick, well := about("kind", "one", byNode[stopped]), about("kind", "one", healthy...)
	warm := startStream(t, f, rate, well)
	warm.after(t, int(float64(rate)*lasts.Seconds()/2))
	warm.stop()
	before := f.unanswered(t)
	t.Logf("before: %v; p99.9 %v, slowest %v", &warm.outcome, warm.quantile(0.999), warm.quantile(1))

	require.NoError(t, stopped.Pause())
	victims := startStream(t, f, sickRate, sick)
	load := startStream(t, f, rate, well)
	time.Sleep(lasts)
	load.stop()
	require.NoError(t, stopped.Resume())
	victims.stop()

	t.Logf("healthy: %.0f/s: %v; p50 %v, p99 %v, p99.9 %v, slowest %v; on the stopped one: %v; %d not answered", load.perSecond(), &load.outcome,
		load.quantile(0.5), load.quantile(0.99), load.quantile(0.999), load.quantile(1), &victims.outcome, f.unanswered(t)-before)
	require.Zero(t, load.errors+victims.errors)
	if long() {
		require.Less(t, load.quantile(0.999), 50*time.Millisecond)
		require.LessOrEqual(t, load.quantile(1), 500*time.Millisecond)
	} else {
		require.Zero(t, load.denied, "a failure mode decided about a healthy primary's key")
	}
	require.NoError(t, cluster.WaitReady(t.Context()))
}

// TestField_EvictionIsWarnedOfOnce: four primaries that may forget buckets make one warning, and a gauge.
func TestField_EvictionIsWarnedOfOnce(t *testing.T) {
	cluster := useCluster(t, counting)
	set := func(policy string) {
		for _, node := range cluster.Nodes {
			_, err := node.Do(context.Background(), "CONFIG", "SET", "maxmemory-policy", policy)
			require.NoError(t, err)
		}
	}
	defer set("noeviction")
	set("volatile-lru")
	f := startFleet(t, fleetSetup{policies: counting, urls: cluster.URLs(), timeout: 5 * time.Second})
	var tenants []string
	for _, tenant := range tenantsApart(t, cluster, ofTenant("tokens"), "evicted-") {
		tenants = append(tenants, tenant)
	}
	request := about("kind", "one", tenants...)
	for n := range 40 {
		allowed, err := f.call(n, request(n))
		require.NoError(t, err)
		require.True(t, allowed)
	}
	require.Equal(t, 1, f.sum(t, "envoy_rls_store_may_evict"))
	require.Equal(t, 1, strings.Count(f.instances[0].Log.String(), "may forget"))
}
