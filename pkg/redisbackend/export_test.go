package redisbackend

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// NewCounting makes a store whose script does nothing but count, in the key of the first bucket, the calls that it is run for, and its runs in
// that key with :scripts.
func NewCounting(o Options) (*Store, error) {
	const source = "redis.call('INCR', KEYS[1] .. ':scripts') return redis.call('INCRBY', KEYS[1], ARGV[1] or 1)"
	return newStore(o, codec{
		luaScript: newScript(source),
		appendArgs: func(args []any, buckets []ratelimit.Bucket, at []int, _ bool) []any {
			return append(args, 1, buckets[at[0]].Key.Bytes())
		},
		readReply: func(reply any, _ place, _ []ratelimit.Bucket, at []int, results []ratelimit.Result) error {
			runs, ok := reply.(int64)
			if !ok {
				return errors.New("not a number")
			}
			for _, i := range at {
				results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, Remaining: float64(runs)}
			}
			return nil
		},
	})
}

// NewUnderTestClock makes a store whose script takes the time, in microseconds, from the key TestClock.
func NewUnderTestClock(t testing.TB, o Options) (*Store, error) {
	source := strings.NewReplacer("ARGV[#KEYS + 1]", "call('GET', '"+TestClock+"')", "ARGV[n + 2]", "ARGV[n + 1]").
		Replace(underTestClock(t, script.source).source)
	return newStore(o, codec{newScript(source), appendArgs, readReply})
}

// NewMutant makes a store whose script has the first occurrence of each text replaced by the one that follows it.
func NewMutant(t testing.TB, o Options, changes ...string) (*Store, error) {
	t.Helper()
	s := script
	for i := 0; i < len(changes); i += 2 {
		s = mutant(t, s.source, changes[i], changes[i+1], 1)
	}
	return newStore(o, codec{s, appendArgs, readReply})
}

// mutant has the n-th occurrence of a text (from 1) replaced by another.
func mutant(t testing.TB, source, from, to string, n int) luaScript {
	t.Helper()
	parts := strings.SplitN(source, from, n+1)
	require.Len(t, parts, n+1, "the script no longer has this text")
	return newScript(strings.Join(parts[:n], from) + to + parts[n])
}

// TestClock is a key of a server.
const TestClock = "clock"

// Slot is the slot of a key.
func Slot(key []byte) int { return int(slotOf(hashTag(key))) }

// Patience is how long the store waits for a caller with this context.
func (s *Store) Patience(ctx context.Context) time.Duration {
	return patience(ctx, time.Now(), s.client.options.Timeout)
}
