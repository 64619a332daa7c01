package ratelimit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// TestRemaindersBounded: many clients cannot make it remember without end, and what is old gives way.
func TestRemaindersBounded(t *testing.T) {
	var p remainderPart
	for n := range uint64(10 * mostRemainders) {
		require.True(t, p.note(policy.Identity{A: n}, 5, 0, 1))
	}
	require.Len(t, p.owed, mostRemainders)
	const began, later = 1, longestOpen + 2
	cost, _ := p.claim(policy.Identity{A: mostRemainders - 1}, 9, began)
	require.Equal(t, uint64(5), cost)
	cost, seen := p.claim(policy.Identity{A: mostRemainders}, 9, began)
	require.Zero(t, cost, "there was no room for it")
	require.Equal(t, uint64(2), seen)

	require.False(t, p.note(policy.Identity{A: 1 << 40}, 5, seen-1, later), "something was given back since")
	for n := range uint64(3) {
		require.True(t, p.note(policy.Identity{A: 1<<40 + n}, 5, seen, later))
	}
	require.Len(t, p.owed, 3)
	cost, _ = p.claim(policy.Identity{A: 1 << 40}, 3, began)
	require.Equal(t, uint64(3), cost)
	cost, _ = p.claim(policy.Identity{A: 1 << 40}, 3, later+1)
	require.Zero(t, cost, "a reservation that began later")
	cost, _ = p.claim(policy.Identity{A: 1 << 40}, 3, began)
	require.Equal(t, uint64(2), cost)
}
