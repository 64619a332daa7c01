package metrics_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
)

func TestShares(t *testing.T) {
	state := metrics.Shares{Instances: 4, Owing: 7, Charged: 100, Unknown: 3, Dropped: 2}
	m := metrics.New(metrics.Options{Shares: func() metrics.Shares { return state }})
	require.Equal(t, []string{
		"instances 4",
		"local_owing_buckets 7",
		`local_reconciled_cost_total{result="charged"} 100`,
		`local_reconciled_cost_total{result="dropped"} 2`,
		`local_reconciled_cost_total{result="unknown"} 3`,
	}, exposed(t, m, "instances", "local_"))
	state.Instances = 3
	require.Equal(t, []string{"instances 3"}, exposed(t, m, "instances"))
	problems, err := testutil.GatherAndLint(m.Registry())
	require.NoError(t, err)
	require.Empty(t, problems)
	require.Empty(t, exposed(t, metrics.New(metrics.Options{}), "instances"), "nobody shares a store in memory")
}
