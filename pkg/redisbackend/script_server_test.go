package redisbackend

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// scriptServer starts a server and returns a client of it. The server's clock can be set.
func scriptServer(t testing.TB) (*redistest.Server, *redis.Client) {
	t.Helper()
	server := redistest.StartStandalone(t, redistest.Options{MovingClock: true})
	c := redis.NewClient(&redis.Options{Addr: fmt.Sprint("127.0.0.1:", server.Port), MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	load(t, c, script)
	return server, c
}

func load(t testing.TB, c *redis.Client, s luaScript) {
	t.Helper()
	sha, err := c.ScriptLoad(context.Background(), s.source).Result()
	require.NoError(t, err)
	require.Equal(t, s.sha, sha)
}

// acquire has the script decide on buckets.
func acquire(c *redis.Client, buckets ...ratelimit.Bucket) ([]ratelimit.Result, error) {
	at := indices(buckets)
	reply, err := c.Do(context.Background(), appendArgs([]any{"EVALSHA", script.sha}, buckets, at, false)...).Result()
	if err != nil {
		return nil, err
	}
	results := make([]ratelimit.Result, len(buckets))
	return results, readReply(reply, place{1, 1}, buckets, at, results)
}

func acquired(t testing.TB, c *redis.Client, buckets ...ratelimit.Bucket) []ratelimit.Result {
	t.Helper()
	results, err := acquire(c, buckets...)
	require.NoError(t, err)
	return results
}

func indices(buckets []ratelimit.Bucket) []int {
	at := make([]int, len(buckets))
	for i := range at {
		at[i] = i
	}
	return at
}

func tokenBucket(capacity, perMinute float64) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: capacity, Rate: perMinute / 60e6}
}

func slidingLog(limit float64, window int64) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: limit, Window: window}
}

func take(id string, l algorithm.Limits) ratelimit.Bucket {
	key := policy.NewKey(policy.Part{Name: "tenant", Value: "acme12345"}, id)
	return ratelimit.Bucket{Key: key, Limits: l, Cost: 1, Op: ratelimit.Take}
}

// with is the same bucket with another op and cost.
func with(b ratelimit.Bucket, op ratelimit.Op, cost uint64) ratelimit.Bucket {
	b.Op, b.Cost = op, cost
	return b
}

const extraLife = 1_000_000_000 // ms

// underTestClock is the script with the time as an argument, in front of the number of calls. Keys live longer than told, by extraLife, so that the
// server's real clock has no say.
func underTestClock(t testing.TB, source string) luaScript {
	t.Helper()
	for _, change := range [][2]string{
		{"local clock = call('TIME')\n", ""},
		{"local time = clock[1] * 1000000 + clock[2]", "local time = tonumber(ARGV[#KEYS + 1])"},
		{"ARGV[n + 1]", "ARGV[n + 2]"},
		{"'PX', life)", fmt.Sprintf("'PX', life + %d)", extraLife)},
		{"call('PTTL', key) < life", fmt.Sprintf("call('PTTL', key) - %d < life", extraLife)},
		{"call('PEXPIRE', key, life)", fmt.Sprintf("call('PEXPIRE', key, life + %d)", extraLife)},
	} {
		require.Contains(t, source, change[0])
		source = strings.ReplaceAll(source, change[0], change[1])
	}
	return newScript(source)
}
