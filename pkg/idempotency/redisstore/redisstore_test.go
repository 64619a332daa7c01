package redisstore_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency/idempotencytest"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency/redisstore"
)

// connect makes a client of the kind that the addresses ask for.
func connect(t *testing.T, addrs ...string) redis.UniversalClient {
	t.Helper()
	c := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, ContextTimeoutEnabled: true, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func newStore(t *testing.T, c redis.UniversalClient, prefix string) *redisstore.Store {
	t.Helper()
	s, err := redisstore.New(redisstore.Options{Client: c, Prefix: prefix})
	require.NoError(t, err)
	return s
}

// pass brings the ends of all entries on one server nearer.
const pass = `
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  redis.call('PEXPIRE', key, redis.call('PTTL', key) - ARGV[2])
end
return 1`

func TestConformance(t *testing.T) {
	c := connect(t, redistest.StartStandalone(t).Addr())
	var n atomic.Int32
	idempotencytest.Run(t, func(t *testing.T, test func(*testing.T, idempotencytest.Harness)) {
		prefix := fmt.Sprintf("test-%d:", n.Add(1))
		test(t, idempotencytest.Harness{Store: newStore(t, c, prefix), Advance: func(d time.Duration) {
			require.NoError(t, c.Eval(context.Background(), pass, nil, prefix, d.Milliseconds()).Err())
		}})
	})
}

func TestConformanceOfACluster(t *testing.T) {
	var addrs []string
	for _, url := range shared.Cluster(t).URLs() {
		addrs = append(addrs, strings.TrimPrefix(url, "redis://"))
	}
	c := connect(t, addrs...).(*redis.ClusterClient)
	var n atomic.Int32
	idempotencytest.Run(t, func(t *testing.T, test func(*testing.T, idempotencytest.Harness)) {
		prefix := fmt.Sprintf("test-%d:", n.Add(1))
		test(t, idempotencytest.Harness{Store: newStore(t, c, prefix), Advance: func(d time.Duration) {
			err := c.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
				return node.Eval(ctx, pass, nil, prefix, d.Milliseconds()).Err()
			})
			require.NoError(t, err)
		}})
	})
}

// TestSentinel: a client that finds its server by way of Sentinel will do.
func TestSentinel(t *testing.T) {
	watch := redistest.StartSentinel(t, redistest.Options{})
	c := redis.NewUniversalClient(&redis.UniversalOptions{
		Addrs: watch.SentinelAddrs(), MasterName: redistest.SentinelMaster, ContextTimeoutEnabled: true, DisableIdentity: true,
	})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	s := newStore(t, c, "")
	claim := idempotency.Claim{Lease: time.Minute}
	_, err := s.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.NoError(t, s.Complete(t.Context(), claim, idempotency.Answer{Data: []byte("answer"), Free: 1, TTL: time.Hour}))
	found, err := s.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.Equal(t, idempotency.Found{State: idempotency.Completed, Free: true, Data: []byte("answer")}, found)
}

// TestEveryEntryEnds: whatever step comes, no entry is without a time to live.
func TestEveryEntryEnds(t *testing.T) {
	c := connect(t, redistest.StartStandalone(t).Addr())
	s := newStore(t, c, "")
	for i, step := range []func(idempotency.Claim) error{
		func(claim idempotency.Claim) error { _, err := s.Claim(t.Context(), claim); return err },
		func(claim idempotency.Claim) error { return s.Renew(t.Context(), claim) },
		func(claim idempotency.Claim) error {
			return s.Complete(t.Context(), claim, idempotency.Answer{Data: []byte("a"), Free: 1, TTL: time.Hour})
		},
		func(claim idempotency.Claim) error { return s.Release(t.Context(), claim) },
	} {
		claim := idempotency.Claim{Key: idempotency.Key{byte(i)}, Lease: time.Minute}
		require.NoError(t, step(claim))
		if i == 2 {
			_, err := s.Claim(t.Context(), claim) // a replay
			require.NoError(t, err)
		}
	}
	keys, err := c.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 3)
	for _, key := range keys {
		require.Regexp(t, "^idem:[0-9a-f]{64}$", key)
		ttl, err := c.PTTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Positive(t, ttl)
	}
}

// TestOneRoundTrip counts the commands of each step, once the server knows the script.
func TestOneRoundTrip(t *testing.T) {
	server := redistest.StartStandalone(t)
	c := connect(t, server.Addr())
	s := newStore(t, c, "")
	claim := idempotency.Claim{Lease: time.Minute}
	_, err := s.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.NoError(t, c.ConfigResetStat(t.Context()).Err())
	_, err = s.Claim(t.Context(), claim)
	require.NoError(t, err)
	require.NoError(t, s.Renew(t.Context(), claim))
	require.NoError(t, s.Complete(t.Context(), claim, idempotency.Answer{TTL: time.Hour}))
	require.NoError(t, s.Release(t.Context(), claim))
	stats, err := c.Info(t.Context(), "commandstats").Result()
	require.NoError(t, err)
	require.Contains(t, stats, "cmdstat_evalsha:calls=4,")
	require.NotContains(t, stats, "cmdstat_eval:")

	require.NoError(t, c.ScriptFlush(t.Context()).Err())
	_, err = s.Claim(t.Context(), claim)
	require.NoError(t, err, "a server that was restarted does not know the script")
}

// TestTrouble: what is not an answer of the script is an error, never a state.
func TestTrouble(t *testing.T) {
	server := redistest.StartStandalone(t)
	c := connect(t, server.Addr())
	s := newStore(t, c, "")
	claim := idempotency.Claim{Lease: time.Minute}
	require.NoError(t, c.Set(t.Context(), "idem:"+strings.Repeat("00", 32), "not a hash", 0).Err())
	fails := func(what string) {
		t.Helper()
		found, err := s.Claim(t.Context(), claim)
		require.ErrorContains(t, err, "redis: claim: ", what)
		require.Zero(t, found, what)
		require.ErrorContains(t, s.Renew(t.Context(), claim), "redis: renew: ", what)
		require.ErrorContains(t, s.Complete(t.Context(), claim, idempotency.Answer{TTL: time.Hour}), "redis: complete: ", what)
		require.ErrorContains(t, s.Release(t.Context(), claim), "redis: release: ", what)
	}
	fails("a value of another kind")

	require.NoError(t, server.Pause())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := s.Claim(ctx, claim)
	var slow net.Error
	require.ErrorAs(t, err, &slow)
	require.True(t, slow.Timeout())
	server.Kill()
	fails("no server")
}

func TestNewTellsAllFaults(t *testing.T) {
	_, err := redisstore.New(redisstore.Options{Prefix: "{x}"})
	require.ErrorContains(t, err, "redisstore: no client")
	require.ErrorContains(t, err, `prefix "{x}"`)
	_, err = redisstore.New(redisstore.Options{Prefix: strings.Repeat("x", 65)})
	require.ErrorContains(t, err, "at most 64 bytes")
}
