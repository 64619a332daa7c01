package redisbackend

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Layouts of a sliding log that were not chosen (docs/adr/0006-sliding-log-layout.md), each as a take of cost 1 and nothing else: KEYS[1],
// then packed limit and window as our script gets them, then the time.
const layoutHead = `local call, key, time = redis.call, KEYS[1], tonumber(ARGV[2])
local kind, op, cost, limit, window = struct.unpack('<BBddd', ARGV[1])
`

const packedString = `local s = call('GET', key) or ''
local from = 1
while from < #s and struct.unpack('<d', s, from) <= time - window do from = from + 8 end
if (#s - from + 1) / 8 + cost > limit then return struct.pack('<dd', 2, struct.unpack('<d', s, from)) end
call('SET', key, s:sub(from) .. struct.pack('<d', time), 'PX', math.floor(window / 1000) + 2)
return struct.pack('<dd', 1, limit)`

var layouts = []struct{ name, script string }{
	{"packed string", layoutHead + packedString},
	{"list", layoutHead + `local oldest = call('LINDEX', key, 0)
while oldest and tonumber(oldest) <= time - window do
  call('LPOP', key)
  oldest = call('LINDEX', key, 0)
end
local count = call('LLEN', key)
if count + cost > limit then return struct.pack('<dd', 2, tonumber(oldest)) end
call('RPUSH', key, time)
call('PEXPIRE', key, math.floor(window / 1000) + 2)
return struct.pack('<dd', 1, limit - count)`},
	{"sorted set", layoutHead + `call('ZREMRANGEBYSCORE', key, '-inf', time - window)
local count = call('ZCARD', key)
if count + cost > limit then return struct.pack('<dd', 2, tonumber(call('ZRANGE', key, 0, 0, 'WITHSCORES')[2])) end
call('ZADD', key, time, struct.pack('<d', time))
call('PEXPIRE', key, math.floor(window / 1000) + 2)
return struct.pack('<dd', 1, limit - count)`},
}

// BenchmarkLogLayout reports what a take costs Redis when the log is full and one entry leaves as one comes, and what the log takes up
// then.
func BenchmarkLogLayout(b *testing.B) {
	_, c := scriptServer(b)
	all := append([]struct{ name, script string }{{"runs in a string", underTestClock(b, script.source).source}}, layouts...)
	b.Run("empty", func(b *testing.B) {
		s := newScript("return 1")
		load(b, c, s)
		benchmarkLayout(b, c, s, 10)
	})
	for _, limit := range []int64{10, 10_000, 100_000} {
		for _, l := range all {
			b.Run(fmt.Sprintf("%s/%d", l.name, limit), func(b *testing.B) {
				s := newScript(l.script)
				load(b, c, s)
				benchmarkLayout(b, c, s, limit)
			})
		}
	}
}

func benchmarkLayout(b *testing.B, c *redis.Client, s luaScript, limit int64) {
	ctx := context.Background()
	const step = 1000
	key := take("log", slidingLog(float64(limit), limit*step))
	require.NoError(b, c.FlushAll(ctx).Err())
	now := int64(1_800_000_000_000_000)
	round := func(n int) {
		p := c.Pipeline()
		for i := range n {
			now += step
			p.Do(ctx, append(appendArgs([]any{"EVALSHA", s.sha}, []ratelimit.Bucket{key}, []int{0}, false), now)...)
			if p.Len() == 100 || i == n-1 {
				_, err := p.Exec(ctx)
				require.NoError(b, err)
			}
		}
	}
	if strings.Contains(s.source, packedString) {
		var full []byte // the script would take minutes
		for range limit {
			now += step
			full = appendFloat(full, float64(now))
		}
		require.NoError(b, c.Set(ctx, key.Key.String(), full, time.Hour).Err())
		round(100)
	} else {
		round(int(limit + limit/2))
	}
	before := cpu(ctx, c)
	round(b.N)
	b.ReportMetric((cpu(ctx, c)-before)/float64(b.N), "cpu-us/op")
	bytes, _ := c.Do(ctx, "MEMORY", "USAGE", key.Key.String(), "SAMPLES", 0).Int64() // nil for the empty script
	b.ReportMetric(float64(bytes), "bytes")
}
