package metrics_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// TestReloadsLeaveNothingBehind: each adds a policy and drops one. What is kept of a policy must not keep the set that it first came with.
func TestReloadsLeaveNothingBehind(t *testing.T) {
	const policies, reloads = 300, 100
	m := metrics.New(metrics.Options{Shared: func() metrics.Shared { return metrics.Shared{} }})
	use := func(first int) {
		var text strings.Builder
		text.WriteString("policies:\n")
		for i := range policies {
			fmt.Fprintf(&text, "  - {id: p%d, match: {tenant: %s%d}, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", first+i, strings.Repeat("t", 1000), first+i)
		}
		set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(text.String())})
		require.NoError(t, err)
		m.Use(set)
	}
	alive := func() uint64 {
		runtime.GC()
		runtime.GC() // a pool lets go at the second
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return s.HeapAlloc
	}
	use(0)
	before := alive()
	for i := range reloads {
		use(i + 1)
	}
	const oneSet = policies * 1000 // its texts at the least
	require.Less(t, alive(), before+10*oneSet, "of %d sets", reloads)
	runtime.KeepAlive(m)
}
