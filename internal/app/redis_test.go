package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/envoy-rls/envoy-rls/internal/admin"
	"github.com/envoy-rls/envoy-rls/internal/app"
	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// onRedis starts a service that keeps its buckets there.
func onRedis(t *testing.T, policies string, urls ...string) *instance {
	t.Helper()
	opts, log := options(t, policies)
	opts.Store, opts.StoreTimeout = "redis", time.Second
	opts.Redis.URLs = urls
	return launch(t, opts, log)
}

func TestSharesBucketsOnRedis(t *testing.T) {
	server := redistest.StartStandalone(t, redistest.Options{Config: []string{"maxmemory-policy allkeys-lru"}})
	one, two := onRedis(t, perIP, server.URL()), onRedis(t, perIP, server.URL())
	require.NotContains(t, one.log.String(), "does not answer")
	require.Equal(t, "0", one.metric(`envoy_rls_store_calls_total{node="`+server.Addr()+`",result="answered"}`), "warming up is not counted")
	keys, err := server.Do(t.Context(), "KEYS", "*")
	require.NoError(t, err)
	for _, key := range keys.([]any) {
		require.True(t, strings.HasPrefix(key.(string), "rl:{instances}"), "warming up writes nothing but that the instances are there")
	}
	require.Equal(t, 2, one.admitted(2, "remote_address", hostname))
	require.Equal(t, 1, two.admitted(5, "remote_address", hostname))

	require.Equal(t, "1", two.metric(`envoy_rls_decisions_total{outcome="denied",policy="per-ip",source="store"}`))
	require.Equal(t, "3", two.metric(`envoy_rls_decisions_total{outcome="denied",policy="per-ip",source="cache"}`))
	require.Equal(t, "3", two.metric("envoy_rls_rejection_cache_denials_total"))
	require.Equal(t, "2", two.metric(`envoy_rls_store_calls_total{node="`+server.Addr()+`",result="answered"}`))
	require.Equal(t, "2", two.metric(`envoy_rls_store_call_duration_seconds_count{node="`+server.Addr()+`"}`))
	require.Equal(t, "0", two.metric(`envoy_rls_store_queued_calls{node="`+server.Addr()+`"}`))
	require.Empty(t, two.metric("envoy_rls_buckets"), "Redis knows, the service does not")

	got := two.status()
	require.Equal(t, "redis", got.Store.Kind)
	require.Equal(t, []admin.NodeStatus{{Node: server.Addr(), Connected: true, Breaker: "closed"}}, got.Store.Redis.Nodes)
	require.Equal(t, 1.0, got.Store.Redis.Available)
	require.Equal(t, "1", two.metric("envoy_rls_store_available"))
}

func TestField_RedisThatMayForgetBuckets(t *testing.T) {
	for policy, want := range map[string]string{"allkeys-lru": "1", "noeviction": "0"} {
		t.Run(policy, func(t *testing.T) {
			server := redistest.StartStandalone(t, redistest.Options{Config: []string{"maxmemory-policy " + policy}})
			i := onRedis(t, perIP, server.URL()) // before the first call
			require.Eventually(t, func() bool { return i.metric("envoy_rls_store_may_evict") == want }, 10*time.Second, 10*time.Millisecond)
			require.Equal(t, want == "1", *i.status().Store.Redis.MayEvict)
			if want == "1" {
				require.Contains(t, i.log.String(), "level=WARN msg=\"Redis may forget buckets")
			} else {
				require.NotContains(t, i.log.String(), "may forget")
			}
		})
	}
	t.Run("not to be asked", func(t *testing.T) {
		server := redistest.StartStandalone(t, redistest.Options{Config: []string{strings.TrimSuffix(documentedUser(t), " +info")}})
		url := "redis://limiter:secret@" + server.Addr()
		i := onRedis(t, perIP, url)
		require.Equal(t, 3, i.admitted(5, "remote_address", hostname))
		require.Empty(t, i.metric("envoy_rls_store_may_evict"))
		require.NotContains(t, i.log.String(), "secret")
	})
}

// documentedUser is the line of docs/redis.md for Redis' ACL.
func documentedUser(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/redis.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^user limiter .*$`).FindString(string(text))
	require.NotEmpty(t, line)
	return line
}

// TestDocumentedUser: the user of the documentation may do all that the service needs.
func TestDocumentedUser(t *testing.T) {
	o := redistest.Options{Primaries: 3, ReplicasEach: -1, Config: []string{documentedUser(t)}}
	t.Run("one server", func(t *testing.T) { useAs(t, redistest.StartStandalone(t, o)) })
	t.Run("cluster", func(t *testing.T) {
		if !long() {
			t.Skip("takes seconds: ENVOY_RLS_LONG=1")
		}
		useAs(t, redistest.StartCluster(t, o).Nodes[0])
	})
}

// useAs runs a service as the user of the documentation, with the password in a file, and makes all kinds of calls.
func useAs(t *testing.T, server *redistest.Server) {
	opts, log := options(t, allOps)
	opts.Store, opts.StoreTimeout = "redis", time.Second
	opts.Redis.URLs, opts.Redis.PasswordFile = []string{"redis://limiter@" + server.Addr()}, filepath.Join(t.TempDir(), "password")
	require.NoError(t, os.WriteFile(opts.Redis.PasswordFile, []byte("secret\n"), 0o600))
	i := launch(t, opts, log)
	require.Equal(t, 3, i.admitted(5, "remote_address", hostname))
	for _, hits := range []uint64{0, 2} { // a look, a charge
		r := request("edge", "remote_address", "203.0.113.8")
		r.Descriptors[0].HitsAddend = wrapperspb.UInt64(hits)
		_, err := i.rls.ShouldRateLimit(t.Context(), r)
		require.NoError(t, err)
	}
	_, metrics := i.page("/metrics")
	require.NotContains(t, metrics, "envoy_rls_unanswered_buckets_total{")
	require.Equal(t, "0", i.metric("envoy_rls_store_may_evict"))
	require.NotContains(t, i.log.String(), "level=WARN")
}

const allOps = `domain: edge
policies:
  - {id: tokens, key: [ip], algorithm: token-bucket, capacity: 3, refillPerDay: 3, onStoreFailure: closed}
  - {id: log, key: [ip], algorithm: sliding-log, limit: 5, window: 1h, onStoreFailure: closed}
  - {id: long-log, key: [ip], algorithm: sliding-log, limit: 5000, window: 1h, onStoreFailure: closed}
  - {id: usage, key: [ip], algorithm: token-bucket, capacity: 10, refillPerDay: 3, charge: postpaid, onStoreFailure: closed}
`

// TestField_HotDrainedKey: a key that is called on after its denial costs Redis next to nothing.
func TestField_HotDrainedKey(t *testing.T) {
	server := redistest.StartStandalone(t)
	i := onRedis(t, perIP, server.URL())
	i.admitted(4, "remote_address", hostname)
	const callers = 8
	each := 500
	if long() {
		each = 20_000
	}
	began := time.Now()
	require.NoError(t, server.ResetStats(t.Context()))
	var all sync.WaitGroup
	for range callers {
		all.Go(func() {
			for range each {
				answer, err := i.rls.ShouldRateLimit(t.Context(), request("edge", "remote_address", hostname))
				if assert.NoError(t, err) {
					assert.Equal(t, rlsv3.RateLimitResponse_OVER_LIMIT, answer.GetOverallCode())
				}
			}
		})
	}
	all.Wait()
	stats, err := server.CommandStats(t.Context())
	require.NoError(t, err)
	calls, seconds := float64(stats["evalsha"].Calls), time.Since(began).Seconds()
	t.Logf("%.5f calls of Redis for each decision", calls/float64(callers*each))
	// Each caller may ask once when the denial is forgotten, which is after a second; the rest is what instances ask beside the decisions.
	require.LessOrEqual(t, calls, (callers+7)*(seconds+1))
}

const modes = `domain: edge
policies:
  - {id: open, match: {mode: open}, key: [ip], algorithm: token-bucket, capacity: 3, refillPerDay: 3, onStoreFailure: open}
  - {id: local, match: {mode: local}, key: [ip], algorithm: token-bucket, capacity: 3, refillPerDay: 3, onStoreFailure: local}
  - {id: closed, match: {mode: closed}, key: [ip], algorithm: token-bucket, capacity: 3, refillPerDay: 3, onStoreFailure: closed}
`

// TestField_RedisAbsentAtStart: every decision is the failure mode's and comes within the deadline, the service is ready, and counts
// as soon as Redis is there.
func TestField_RedisAbsentAtStart(t *testing.T) {
	server := redistest.StartStandalone(t)
	server.Kill()
	i := onRedis(t, modes, server.URL())
	code, body := i.page("/readyz")
	require.Equal(t, 200, code, body)
	require.Contains(t, i.log.String(), "Redis does not answer yet")
	require.Equal(t, 4, i.admitted(4, "remote_address", hostname, "mode", "open"))
	require.Equal(t, 3, i.admitted(4, "remote_address", hostname, "mode", "local"), "it takes itself for the only one")
	denied := i.call("remote_address", hostname, "mode", "closed")
	require.Equal(t, rlsv3.RateLimitResponse_OVER_LIMIT, denied.GetOverallCode())
	require.Contains(t, string(denied.GetRawBody()), "temporary-reduced-capacity")
	require.Empty(t, header(denied, "RateLimit"), "nothing is known of the bucket")
	require.Equal(t, "4", i.metric(`envoy_rls_decisions_total{outcome="allowed",policy="open",source="open"}`))
	require.Equal(t, "1", i.metric(`envoy_rls_decisions_total{outcome="denied",policy="closed",source="closed"}`))
	_, metrics := i.page("/metrics")
	require.Contains(t, metrics, `envoy_rls_unanswered_buckets_total{mode="local",reason="`)

	require.NoError(t, server.Restart(t.Context()))
	require.Eventually(t, func() bool {
		return i.call("remote_address", "203.0.113.9", "mode", "closed").GetOverallCode() == rlsv3.RateLimitResponse_OK
	}, 10*time.Second, 20*time.Millisecond)
	require.LessOrEqual(t, i.admitted(4, "remote_address", "203.0.113.9", "mode", "closed"), 2)
}

const twoShards = `domain: edge
policies:
  - {id: address, match: {ip: "*"}, key: [ip], algorithm: sliding-log, limit: 5, window: 1h, onStoreFailure: closed}
  - {id: tenant, match: {tenant: "*"}, key: [tenant], algorithm: token-bucket, capacity: 100, refillPerDay: 1, onStoreFailure: open}
`

// TestOneShardDead: what a request took from a healthy shard is given back if the dead one's policy denies it, and stands if that
// policy admits.
func TestOneShardDead(t *testing.T) {
	if !long() {
		t.Skip("takes seconds: ENVOY_RLS_LONG=1")
	}
	cluster := redistest.StartCluster(t, redistest.Options{Primaries: 3, ReplicasEach: -1, NodeTimeout: time.Minute})
	i := onRedis(t, twoShards, cluster.URLs()...)
	primary := func(key string) *redistest.Server {
		node, err := cluster.Primary(t.Context(), key)
		require.NoError(t, err)
		return node
	}
	dead := primary("rl:{ip:" + hostname + "}:address")
	tenant := ""
	for n := 0; tenant == ""; n++ { // one on another shard
		if name := fmt.Sprint("tenant", n); primary("rl:{t:"+name+"}:tenant") != dead {
			tenant = name
		}
	}
	require.Equal(t, 2, i.admitted(2, "remote_address", hostname, "tenant", tenant))
	dead.Kill()
	require.Zero(t, i.admitted(20, "remote_address", hostname, "tenant", tenant))
	look := request("edge", "tenant", tenant)
	look.Descriptors[0].HitsAddend = wrapperspb.UInt64(0)
	require.Eventually(t, func() bool {
		answer, err := i.rls.ShouldRateLimit(t.Context(), look)
		require.NoError(t, err)
		return strings.HasPrefix(header(answer, "RateLimit"), `"tenant";r=98;`)
	}, 10*time.Second, 10*time.Millisecond, "100 less the two that were admitted")
	require.NotEqual(t, "0", i.metric(`envoy_rls_store_undos_total{result="begun"}`))
	require.Equal(t, "0", i.metric(`envoy_rls_store_undos_total{result="failed"}`))
}

func TestRedisOptions(t *testing.T) {
	tests := map[string]struct {
		change func(*app.Options)
		want   string
	}{
		"redis options for memory": {func(o *app.Options) { o.Redis.URLs = []string{"redis://x"} }, "redis options: the store is memory; want store redis"},
		"a mode for memory":        {func(o *app.Options) { o.Store, o.Redis.Mode = "memory", "cluster" }, "redis options: "},
		"no URL":                   {func(o *app.Options) { o.Store = "redis" }, "redis: no URL"},
		"a URL that is none":       {func(o *app.Options) { o.Store, o.Redis.URLs = "redis", []string{"localhost:6379"} }, "redis: URL 1: "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			opts, _ := options(t, perIP)
			tt.change(&opts)
			_, err := app.New(opts)
			require.ErrorContains(t, err, tt.want)
		})
	}
	opts, log := options(t, perIP)
	opts.Store, opts.Redis = "redis", app.RedisOptions{URLs: []string{"redis://localhost:1"}, PasswordFile: "testdata/nowhere"}
	i := newInstance(t, opts, log)
	require.ErrorContains(t, i.Start(t.Context()), "redis: ")
}
