package topkeys

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// TestAReplacedSetMakesNoLists: a decision that was under way while the set changed must not take one of the few lists for a table that nobody reads.
func TestAReplacedSetMakesNoLists(t *testing.T) {
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte("policies: [{id: a, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}]")})
	require.NoError(t, err)
	k := New()
	k.Use(set)
	old := k.current.Load()
	k.Use(set)
	require.Nil(t, k.list(old, &old.rows[0].allowed))
	require.Zero(t, k.lists)
	current := k.current.Load()
	l := k.list(current, &current.rows[0].allowed)
	require.NotNil(t, l)
	k.Use(set)
	require.Same(t, l, k.current.Load().rows[0].allowed.Load(), "a policy that stays keeps its list")
	require.Equal(t, 1, k.lists)
}
