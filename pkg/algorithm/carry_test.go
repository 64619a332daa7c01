package algorithm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

func TestTokensBecomeEntries(t *testing.T) {
	for _, c := range []struct {
		name            string
		level, capacity float64
		limit           float64
		want            uint64
	}{
		{"full", 10, 10, 25, 0},
		{"rounded up", 7, 10, 25, 8},
		{"exact", 5, 10, 20, 10},
		{"a trace is an entry", 9.999, 10, 5, 1},
		{"drained", 0, 10, 25, 25},
		{"in debt", -3, 10, 25, 25},
		{"large", 0, 1e15 - 1, 1e15 - 1, 1e15 - 1},
		{"nothing to take from", 0, 0, 5, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := algorithm.Tokens{Level: c.level}
			require.Equal(t, c.want, s.EntriesFor(slidingLog(c.limit, minute), tokenBucket(c.capacity, 1), 0))
		})
	}
	t.Run("what refilled meanwhile is not spent", func(t *testing.T) {
		s := algorithm.Tokens{}
		require.Equal(t, uint64(10), s.EntriesFor(slidingLog(20, minute), tokenBucket(10, 60), 5*second))
	})
}

func TestEntriesBecomeTokens(t *testing.T) {
	for _, c := range []struct {
		name     string
		entries  uint64
		limit    float64
		capacity float64
		want     float64
	}{
		{"empty", 0, 10, 25, 25},
		{"rounded down", 3, 10, 25, 17},
		{"exact", 5, 10, 20, 10},
		{"full", 10, 10, 25, 0},
		{"more than a lowered limit", 10, 4, 25, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newLog(1)
			g.Add(c.entries, 0)
			s := g.TokensFor(tokenBucket(c.capacity, 1), slidingLog(c.limit, minute), second)
			require.Equal(t, c.want, s.Level)
			require.Equal(t, second, s.Last)
			require.Equal(t, c.capacity, g.TokensFor(tokenBucket(c.capacity, 1), slidingLog(c.limit, minute), minute).Level)
		})
	}
}
