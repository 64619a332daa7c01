package algorithm_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

func TestEveryAlgorithmHasAScript(t *testing.T) {
	kinds := algorithm.Kinds()
	require.Len(t, kinds, len(algorithm.Names()))
	for i, k := range kinds {
		require.Equal(t, algorithm.Kind(i+1), k)
		for _, section := range []string{"is", "read", "spent", "adopt", "write"} {
			require.Equal(t, 1, strings.Count(k.Script(), "\n--@"+section+"\n"), "%s: section %s", k, section)
		}
	}
	require.Empty(t, algorithm.Kind(0).Script())
	require.Empty(t, algorithm.Kind(len(kinds)+1).Script())
}
