package sizing_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/sizing"
)

// A plan holds what it promises, and one instance or shard less would not.
func TestPlansAreTheSmallestThatHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := sizing.Load{
			Rate:     float64(rapid.IntRange(1, 5_000_000).Draw(t, "rate")),
			Keys:     rapid.IntRange(1, 100_000_000).Draw(t, "keys"),
			Policies: rapid.IntRange(1, 2).Draw(t, "policies"),
			Cores:    rapid.IntRange(1, 16).Draw(t, "cores"),
		}
		const rounding = 1 + 1e-9
		full := float64(sizing.ShardBase) + sizing.ShardBytes*sizing.MemorySpare
		for name, p := range map[string]sizing.Plan{"embedded": sizing.Embedded(l), "redis": sizing.Redis(l)} {
			require.LessOrEqual(t, p.InstanceBusy, sizing.Busy*rounding, name)
			require.LessOrEqual(t, p.ShardBusy, sizing.Busy*rounding, name)
			require.LessOrEqual(t, p.ShardMemory, full*rounding, name)
			if p.Instances > sizing.Zones {
				require.Greater(t, p.InstanceBusy*float64(p.Instances)/float64(p.Instances-1)*rounding, sizing.Busy, name)
			}
			if p.Shards > sizing.MinShards {
				less := sizing.OnRedis(l, p.Instances, p.Shards-1)
				require.True(t, less.ShardBusy*rounding > sizing.Busy || less.ShardMemory*rounding > full, "%s: %+v", name, p)
			}
		}
	})
}

// Figures worked out by hand.
func TestPlans(t *testing.T) {
	l := sizing.Load{Rate: 100_000, Keys: 1_000_000, Policies: 1, Cores: 2}
	embedded := sizing.Embedded(l)
	require.Equal(t, 3, embedded.Instances, "0.923 cores are busy, of 2 x 3 at a half")
	require.InDelta(t, 0.923/6, embedded.InstanceBusy, 1e-9)
	require.InDelta(t, 384<<20+1e6*78*1.5, embedded.InstanceMemory, 1)
	require.Zero(t, embedded.Shards)

	redis := sizing.Redis(l)
	require.Equal(t, 3, redis.Instances, "2.779 cores are busy, of 2 x 3 at a half")
	require.Equal(t, 3, redis.Shards, "1.259 cores are busy, of 3 at a half")
	require.InDelta(t, 128<<20+1e6*136*1.5/3, redis.ShardMemory, 1)
	require.Equal(t, 30, sizing.Redis(sizing.Load{Rate: 1000, Keys: 1_850_000_000, Policies: 1, Cores: 2}).Shards, "memory alone")

	l.Policies = 2
	require.Equal(t, 4, sizing.Redis(l).Shards, "1.737 cores are busy, of 4 at a half")
	require.InDelta(t, 50_000, sizing.PerInstance(2, 20*time.Microsecond), 1e-6)
}
