package lab

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

const layoutKeys = 200 // that are looked at

// OfHash is what buckets take in Redis by what a hash of the same key, with fields tokens and last and an expiry, takes there: the largest among many
// of the buckets whose keys contain part. Those buckets are removed.
func (r *Redis) OfHash(ctx context.Context, part string) (float64, error) {
	primaries, err := r.primaries(ctx)
	if err != nil {
		return 0, err
	}
	conn, err := primaries[0].Dial(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = conn.Close() }() // all replies are read
	replies, err := conn.Pipeline(ctx, [][]any{{"SCAN", 0, "MATCH", "*" + part + "*", "COUNT", 10 * layoutKeys}})
	if err != nil {
		return 0, err
	}
	page, ok := replies[0].([]any)
	if !ok || len(page) != 2 {
		return 0, fmt.Errorf("SCAN replied %v", replies[0])
	}
	keys, _ := page[1].([]any)
	worst := 0.0
	for _, key := range keys[:min(len(keys), layoutKeys)] {
		replies, err := conn.Pipeline(ctx, [][]any{
			{"MEMORY", "USAGE", key},
			{"DEL", key},
			{"HSET", key, "tokens", "99999.98842592593", "last", "1767225600123456"},
			{"PEXPIRE", key, 86_400_000},
			{"MEMORY", "USAGE", key},
			{"DEL", key},
		})
		if err != nil {
			return 0, err
		}
		ours, ok1 := replies[0].(int64)
		hash, ok2 := replies[4].(int64)
		if !ok1 || !ok2 || hash == 0 {
			return 0, fmt.Errorf("MEMORY USAGE replied %v and %v", replies[0], replies[4])
		}
		worst = max(worst, float64(ours)/float64(hash))
	}
	if worst == 0 {
		return 0, errors.New("no key has " + strings.TrimSpace(part))
	}
	return worst, nil
}
