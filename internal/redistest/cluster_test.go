package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

func TestCluster(t *testing.T) {
	began := time.Now()
	c := redistest.StartCluster(t, redistest.Options{Primaries: 4, ReplicasEach: 1})
	t.Logf("started in %v", time.Since(began))
	require.Len(t, c.Nodes, 8)
}
