package fallback_test

import (
	"fmt"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/fallback"
)

// TestSharesSum: whatever the limit, the key and the number of instances, the shares make the whole, and differ by one at most.
func TestSharesSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.IntRange(1, 70).Draw(t, "instances")
		capacity := float64(rapid.OneOf(
			rapid.Uint64Range(0, 200), rapid.Uint64Range(0, 1e15-1), rapid.Just(uint64(count)),
		).Draw(t, "capacity"))
		rate := rapid.OneOf(rapid.Float64Range(1e-13, 1e3), rapid.Just(0.0), rapid.Just(100/60e6)).Draw(t, "rate")
		key := rapid.SliceOfN(rapid.Byte(), 1, 80).Draw(t, "key")
		limits := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: capacity, Rate: rate}

		least, most := capacity, 0.0
		sum, rates := new(big.Float).SetPrec(300), new(big.Float).SetPrec(300)
		for i := range count {
			s := fallback.Instances{Count: count, Index: i}.Share(limits, key)
			least, most = min(least, s.Capacity), max(most, s.Capacity)
			sum.Add(sum, big.NewFloat(s.Capacity))
			rates.Add(rates, big.NewFloat(s.Rate))
		}
		if got, _ := sum.Float64(); got != capacity || most-least > 1 {
			t.Fatalf("shares from %v to %v sum to %v, want %v", least, most, got, capacity)
		}
		unknown := fallback.Instances{Count: count, Index: -1}.Share(limits, key)
		if unknown.Capacity > least {
			t.Fatalf("without an index: %v, but somebody has only %v", unknown.Capacity, least)
		}
		if capacity > 0 {
			requireWithin(t, rates, rate, count)
		}
	})
}

// requireWithin: the rates sum to no more than the whole, and to no less than so many roundings below.
func requireWithin(t *rapid.T, sum *big.Float, rate float64, roundings int) {
	whole := new(big.Float).SetPrec(300).SetFloat64(rate)
	if sum.Cmp(whole) > 0 {
		t.Fatalf("rates sum to %v, more than %v", sum, whole)
	}
	least := new(big.Float).Mul(whole, big.NewFloat(1-float64(roundings)*0x1p-52))
	if sum.Cmp(least) < 0 {
		t.Fatalf("rates sum to %v, less than %v by more than rounding", sum, whole)
	}
}

// TestSmallLimitsAreSpread: which instances count a limit that is smaller than their number depends on the key.
func TestSmallLimitsAreSpread(t *testing.T) {
	const instances, keys = 4, 4000
	one := algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 1, Window: 60e6}
	counted := make([]int, instances)
	for k := range keys {
		key := fmt.Appendf(nil, "rl:{ip:203.0.113.%d}:login", k)
		for i := range instances {
			counted[i] += int(fallback.Instances{Count: instances, Index: i}.Share(one, key).Capacity)
		}
	}
	for i, n := range counted {
		require.InDelta(t, keys/instances, n, keys/instances/5, "instance %d", i)
	}
}

func TestShare(t *testing.T) {
	bucket := algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 100, Rate: 0.5}
	log := algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 100, Window: 7}
	tests := []struct {
		name string
		n    fallback.Instances
		l    algorithm.Limits
		want algorithm.Limits
	}{
		{"alone", fallback.Instances{Count: 1}, bucket, bucket},
		{"nobody was counted", fallback.Instances{}, bucket, bucket},
		{"a quarter", fallback.Instances{Count: 4, Index: 2}, bucket, algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 25, Rate: 0.125}},
		{"a log keeps its window", fallback.Instances{Count: 4, Index: 2}, log, algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 25, Window: 7}},
		{
			"an unknown index gets no part of the remainder",
			fallback.Instances{Count: 200, Index: -1},
			bucket,
			algorithm.Limits{Kind: algorithm.TokenBucket},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			require.Equal(t, tt.want, tt.n.Share(tt.l, []byte("key")))
		})
	}
}
