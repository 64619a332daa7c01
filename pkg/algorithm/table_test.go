package algorithm_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

func TestEveryAlgorithmHasARow(t *testing.T) {
	names := algorithm.Names()
	require.Equal(t, []string{"token-bucket", "sliding-log"}, names)
	for i, name := range names {
		kind, ok := algorithm.ByName(name)
		require.True(t, ok)
		require.Equal(t, algorithm.Kind(i+1), kind, "a kind without a row, or rows out of order")
		require.Equal(t, name, kind.String())
	}
	require.Equal(t, "invalid", algorithm.Kind(len(names)+1).String(), "the last kind has a row")
}

func TestUnknownNames(t *testing.T) {
	for _, name := range []string{"", "token_bucket", "Token-Bucket", "invalid", "gcra"} {
		kind, ok := algorithm.ByName(name)
		require.False(t, ok, name)
		require.Zero(t, kind)
	}
	require.Equal(t, "invalid", algorithm.Kind(0).String())
}
