package faults_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/faults"
	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// What is counted here does not depend on time: the store may take as long as a busy machine needs. One that is killed is known to be gone at once.
const patientTimeout = 3 * time.Second

// is makes one call and returns the answer, which there must be.
func (l *lab) is(n int, entries ...string) harness.Answer {
	l.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), faults.CallTimeout)
	defer cancel()
	answer, err := l.askOne(ctx, n, harness.Attributes(entries...))
	require.NoError(l, err)
	return answer
}

// drain makes calls until so many in a row are denied, on one instance after the other, and returns how many were admitted.
func (l *lab) drain(entries ...string) int {
	l.Helper()
	admitted := 0
	for n, denied := 0, 0; denied < 5*len(l.fleet); n++ {
		require.Less(l, n, 10_000, "it never denies")
		denied++
		if l.is(n, entries...).Allowed {
			admitted, denied = admitted+1, 0
		}
	}
	return admitted
}

// feels waits until the instances do not get an answer from a shard.
func (l *lab) feels(shard int) {
	l.Helper()
	for n := range l.fleet {
		require.Eventually(l, func() bool {
			return l.is(n, "mode", "closed", "tenant", tenantOf(shard, "feels-")).Source == "closed"
		}, patience, time.Millisecond)
	}
}

// TestShadowOnADeadShard: a shadow policy whose shard is dead changes no answer.
func TestShadowOnADeadShard(t *testing.T) {
	l := newLab(t, labSetup{cluster: shared.Cluster(t), timeout: patientTimeout, policies: mixed + `
  - {id: enforced, match: {username: "*"}, key: [username], algorithm: token-bucket, capacity: 10, refillPerDay: 1, onStoreFailure: closed}
  - {id: shadowed, match: {shadowed: "yes"}, key: [tenant], algorithm: token-bucket, capacity: 3, refillPerDay: 1, mode: shadow, onStoreFailure: closed}
  - {id: shadowed-log, match: {shadowed: "yes"}, key: [tenant], algorithm: sliding-log, limit: 3, window: 1h, mode: shadow, onStoreFailure: local}
`})
	l.warm()
	healthy, dead := userOn(others(victim)[0]), tenantOf(victim, "shadow-")
	ask := func(user string) (answers []harness.Answer) {
		for n := range 12 {
			answers = append(answers, l.is(n, "username", user, "tenant", dead, "shadowed", "yes"))
		}
		return answers
	}
	want := ask(healthy + "-before")
	l.primary(victim).Kill()
	l.feels(victim)
	got := ask(healthy + "-after")
	require.Equal(t, want, got)
	require.Equal(t, harness.Answer{Allowed: true, Policy: "enforced", Source: "store"}, got[0])
	require.False(t, got[10].Allowed)
}

// userOn is a user name whose keys, with -before and -after, are on healthy shards.
func userOn(shard int) string {
	for n := 0; ; n++ {
		user := fmt.Sprint("user-", n)
		if userShard(user+"-before") != victim && userShard(user+"-after") == shard {
			return user
		}
	}
}

func userShard(user string) int { return harness.Slot("rl:{u:"+user+"}:enforced") / slotsPer }

// TestTwoSlotsOneDead: of a request's two policies one has its bucket on a dead shard. The other goes on to decide, exactly.
func TestTwoSlotsOneDead(t *testing.T) {
	l := newLab(t, labSetup{cluster: shared.Cluster(t), timeout: patientTimeout, policies: mixed + `
  - {id: enforced, match: {username: "*"}, key: [username], algorithm: token-bucket, capacity: 10, refillPerDay: 1, onStoreFailure: closed}
  - {id: ceiling, match: {ceiling: open}, key: [tenant], algorithm: token-bucket, capacity: 1000, refillPerDay: 1, onStoreFailure: open}
  - {id: strict, match: {ceiling: closed}, key: [tenant], algorithm: token-bucket, capacity: 1000, refillPerDay: 1, onStoreFailure: closed}
`})
	l.warm()
	user, dead := userOn(others(victim)[1])+"-after", tenantOf(victim, "two-")
	l.primary(victim).Kill()
	l.feels(victim)
	for range 5 {
		a := l.is(0, "username", user, "tenant", dead, "ceiling", "closed")
		require.Equal(t, harness.Answer{Policy: "strict", Source: "closed"}, a)
	}
	// What the healthy bucket may have been charged for these comes back.
	require.Eventually(t, func() bool { return l.left(user) == 10 }, patience, 10*time.Millisecond)
	require.Equal(t, 10, l.drain("username", user, "tenant", dead, "ceiling", "open"))
	require.Equal(t, "enforced", l.is(0, "username", user, "tenant", dead, "ceiling", "open").Policy)
}

// left is what a user's bucket has.
func (l *lab) left(user string) int {
	l.Helper()
	s := openStore(l.T, l.cluster)
	defer s.Close()
	b := bucketOf("username", user, "enforced", tokenBucket(10, 1./(24*60)))
	return int(b.Limits.Capacity - charged(l.T, s, b))
}

// TestField_LoginClosed: with all of Redis killed, no login is admitted, on any instance, while an open policy admits.
func TestField_LoginClosed(t *testing.T) {
	server := redistest.StartStandalone(t)
	l := newLab(t, labSetup{server: server, instances: 4, timeout: patientTimeout, policies: mixed + `
  - {id: login, match: {route: "POST /auth/login"}, key: [ip, username], algorithm: sliding-log, limit: 10, window: 1h, onStoreFailure: closed}
  - {id: per-ip, match: {route: "POST /auth/login"}, key: [ip], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: local}
`})
	l.warm()
	login := []string{"route", "POST /auth/login", "remote_address", "192.0.2.1", "username", "ann"}
	require.True(t, l.is(0, login...).Allowed)
	server.Kill()
	l.feels(victim)
	for n := range 400 {
		a := l.is(n, login...)
		require.Equal(t, harness.Answer{Policy: "login", Source: "closed"}, a)
	}
	require.Equal(t, harness.Answer{Allowed: true, Policy: "open", Source: "open"}, l.is(0, "mode", "open", "tenant", "any"))
}

// hundredClosed has a bucket of which nothing is admitted while the store cannot decide.
const hundredClosed = mixed + `
  - {id: hundred, match: {mode: hundred}, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: closed}
`

// TestEmptyRestarts: each time that Redis comes back without its data admits at most one capacity more.
func TestEmptyRestarts(t *testing.T) {
	const capacity, restarts = 100, 3
	server := redistest.StartStandalone(t)
	l := newLab(t, labSetup{server: server, timeout: patientTimeout, policies: hundredClosed})
	l.warm()
	total := l.drain("mode", "hundred", "tenant", "acme")
	require.Equal(t, capacity, total)
	for n := range restarts {
		require.NoError(t, server.Restart(t.Context()))
		l.warm()
		time.Sleep(1100 * time.Millisecond) // for as long a denial may be remembered
		total += l.drain("mode", "hundred", "tenant", "acme")
		l.requireBound(fmt.Sprint("after restart ", n+1), total, float64(capacity*(n+2)))
	}
	require.Greater(t, total, capacity, "the data was not lost")
}

// offset is how far a node has come in what the primary sends to its replicas.
func offset(t *testing.T, node *redistest.Server) string {
	t.Helper()
	info, err := node.Info(t.Context(), "replication")
	require.NoError(t, err)
	return info["master_repl_offset"]
}

// TestPromotedWithoutTheLastCharges: a replica that has not seen the last charges becomes the primary. No more is admitted beyond the limit than
// what it had not seen.
func TestPromotedWithoutTheLastCharges(t *testing.T) {
	const capacity, seen = 100, 30
	cluster := shared.Cluster(t)
	l := newLab(t, labSetup{cluster: cluster, timeout: patientTimeout, policies: hundredClosed})
	l.warm()
	tenant, primary := tenantOf(victim, "unseen-"), l.primary(victim)
	replicas, err := cluster.Replicas(t.Context(), primary)
	require.NoError(t, err)
	replica := replicas[0]
	admitted := 0
	for n := range seen {
		if l.is(n, "mode", "hundred", "tenant", tenant).Allowed {
			admitted++
		}
	}
	require.Equal(t, seen, admitted)
	require.Eventually(t, func() bool { return offset(t, replica) == offset(t, primary) }, patience, time.Millisecond)
	require.NoError(t, replica.Pause())
	_, err = primary.Do(t.Context(), "CLIENT", "KILL", "TYPE", "replica") // what is on its way would arrive all the same
	require.NoError(t, err)
	admitted += l.drain("mode", "hundred", "tenant", tenant)
	primary.Kill()
	require.NoError(t, replica.Resume())
	promoted, err := cluster.AwaitPromotion(t.Context(), primary)
	require.NoError(t, err)
	require.Same(t, replica, promoted)
	l.warm()
	time.Sleep(1100 * time.Millisecond) // for as long a denial may be remembered
	admitted += l.drain("mode", "hundred", "tenant", tenant)
	l.requireBound(fmt.Sprintf("of %d, %d of which the replica had seen", capacity, seen), admitted, capacity+(capacity-seen))
	require.Greater(t, admitted, capacity, "the replica had seen everything")
}
