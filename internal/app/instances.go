package app

import "github.com/envoy-rls/envoy-rls/internal/metrics"

// sharesState is what is told of shares.
func (a *App) sharesState() metrics.Shares {
	d := a.shared.Fallback.Debts()
	return metrics.Shares{
		Instances: a.shared.Fleet.Instances().Count, Owing: d.Buckets, Charged: d.Charged, Unknown: d.Unknown, Dropped: d.Dropped,
	}
}
