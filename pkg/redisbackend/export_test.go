package redisbackend

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// NewCounting makes a store whose script does nothing but count its runs, in the key of the first bucket.
func NewCounting(o Options) (*Store, error) {
	const source = "return redis.call('INCR', KEYS[1])"
	return newStore(o, codec{
		luaScript: newScript(source),
		appendArgs: func(args []any, buckets []ratelimit.Bucket, at []int, _ bool) []any {
			return append(args, 1, buckets[at[0]].Key.Bytes())
		},
		readReply: func(reply any, _ []ratelimit.Bucket, at []int, results []ratelimit.Result) error {
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
	source := strings.ReplaceAll(underTestClock(t, script.source).source, "ARGV[#KEYS + 1]", "call('GET', '"+TestClock+"')")
	return newStore(o, codec{newScript(source), appendArgs, readReply})
}

// TestClock is a key of a server.
const TestClock = "clock"

// Slot is the slot of a key.
func Slot(key []byte) int { return int(slotOf(hashTag(key))) }

// Patience is how long the store waits for a caller with this context.
func (s *Store) Patience(ctx context.Context) time.Duration { return s.patience(ctx, time.Now()) }
