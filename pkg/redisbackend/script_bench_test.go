package redisbackend

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

var (
	usecPerCall = regexp.MustCompile(`cmdstat_evalsha:calls=(\d+),usec=(\d+)`)
	usedCPU     = regexp.MustCompile(`used_cpu_(?:sys|user):([\d.]+)`)
)

// cpu is what the server's process has used, in microseconds.
func cpu(ctx context.Context, c *redis.Client) (us float64) {
	for _, m := range usedCPU.FindAllStringSubmatch(c.Info(ctx, "cpu").Val(), -1) {
		s, _ := strconv.ParseFloat(m[1], 64)
		us += s * 1e6
	}
	return us
}

// BenchmarkRedisCPU reports what one call of the script costs Redis, pipelined 100 at a time.
func BenchmarkRedisCPU(b *testing.B) {
	_, c := scriptServer(b)
	ctx := context.Background()
	require.NoError(b, c.ScriptLoad(ctx, script.source).Err())
	empty := newScript("return 1")
	require.NoError(b, c.ScriptLoad(ctx, empty.source).Err())
	tb := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 1e12, Rate: 1e-3}
	drained := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 1, Rate: 1e-12}
	sl := func(n float64) algorithm.Limits {
		return algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: n, Window: 45_000}
	}
	for _, k := range []struct {
		name   string
		sha    string
		limits []algorithm.Limits
	}{
		{"empty", empty.sha, []algorithm.Limits{tb}},
		{"empty, two keys", empty.sha, []algorithm.Limits{tb, tb}},
		{"tokens admit", script.sha, []algorithm.Limits{tb}},
		{"tokens deny", script.sha, []algorithm.Limits{drained}},
		{"two tokens admit", script.sha, []algorithm.Limits{tb, tb}},
		{"log 10", script.sha, []algorithm.Limits{sl(10)}},
		{"tokens and log 10", script.sha, []algorithm.Limits{tb, sl(10)}},
	} {
		b.Run(k.name, func(b *testing.B) { benchmarkScript(b, c, k.sha, k.limits) })
	}
}

func benchmarkScript(b *testing.B, c *redis.Client, sha string, limits []algorithm.Limits) {
	ctx := context.Background()
	const keys = 1000
	calls := make([][]any, keys)
	for n := range calls {
		var buckets []ratelimit.Bucket
		var at []int
		for i, l := range limits {
			tag := policy.Part{Name: "tenant", Value: fmt.Sprint("acme", 12345+n)}
			key := policy.NewKey(tag, fmt.Sprint("api-free", i), policy.Part{Name: "apiKey", Value: fmt.Sprintf("ak_%016x", n)})
			buckets = append(buckets, ratelimit.Bucket{Key: key, Limits: l, Cost: 1, Op: ratelimit.Take})
			at = append(at, i)
		}
		calls[n] = appendArgs([]any{"EVALSHA", sha}, buckets, at, false)
	}
	require.NoError(b, c.FlushAll(ctx).Err())
	round := func(n int) {
		p := c.Pipeline()
		for i := range n {
			p.Do(ctx, calls[i%keys]...)
			if p.Len() == 100 || i == n-1 {
				_, err := p.Exec(ctx)
				require.NoError(b, err)
			}
		}
	}
	round(2 * keys)
	require.NoError(b, c.ConfigResetStat(ctx).Err())
	before := cpu(ctx, c)
	round(b.N)
	b.ReportMetric((cpu(ctx, c)-before)/float64(b.N), "cpu-us/op")
	m := usecPerCall.FindStringSubmatch(c.Info(ctx, "commandstats").Val())
	count, _ := strconv.ParseFloat(m[1], 64)
	usec, _ := strconv.ParseFloat(m[2], 64)
	b.ReportMetric(usec/count, "script-us/op")
}
