package topkeys

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// TestAReplacedSetMakesNoLists: a decision that was under way while the set changed must not take one of the few lists for a table that nobody reads.
func TestAReplacedSetMakesNoLists(t *testing.T) {
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte("policies: [{id: a, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}]")})
	require.NoError(t, err)
	k := New()
	k.Use(set)
	old := k.current.Load()
	k.Use(set)
	require.Nil(t, k.list(old, 0, ratelimit.Admitted))
	require.Zero(t, k.lists)
	current := k.current.Load()
	l := k.list(current, 0, ratelimit.Admitted)
	require.NotNil(t, l)
	k.Use(set)
	require.Same(t, l, k.current.Load().rows[0].allowed.Load(), "a policy that stays keeps its list")
	require.Equal(t, 1, k.lists)
}

// TestWhoIsNotListedIsSkippedAtOnce: with all lists taken a policy without one is known by its bit, and skips are counted by one call in many.
func TestWhoIsNotListedIsSkippedAtOnce(t *testing.T) {
	k, other := New(), newTable(&policy.Set{})
	other.some = make([]atomic.Uint64, 3)
	other.mark(130)
	require.True(t, other.marked(130))
	for _, index := range []int{0, 2, 66, 129, 131} {
		require.False(t, other.marked(index), index)
	}
	k.full.Store(true)
	require.Nil(t, k.list(other, 129, ratelimit.Denied), "it has no row to look at")
	const skips = 1 << 17
	for range skips {
		k.skip()
	}
	require.InEpsilon(t, skips, k.Uncounted(), 0.3, "fourteen standard deviations")
}
