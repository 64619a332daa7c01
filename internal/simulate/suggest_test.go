package simulate_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// traffic draws calls of a few users in the order of time.
func traffic(t *rapid.T) []call {
	var calls []call
	at := time.Duration(0)
	for range rapid.IntRange(1, 150).Draw(t, "calls") {
		at += time.Duration(rapid.SampledFrom([]int{0, 1, 40, 250, 1000, 7001}).Draw(t, "gap")) * time.Millisecond
		calls = append(calls, call{at, fmt.Sprint(rapid.IntRange(0, 4).Draw(t, "user")), rapid.SampledFrom([]int{noCost, 1, 2, 3, 4}).Draw(t, "cost")})
	}
	return calls
}

// deniedShare replays calls under a policy with other numbers.
func deniedShare(t *rapid.T, calls []call, numbers string) float64 {
	p := run(t, log(calls...), simulate.Options{Policies: policies(t, perUser(numbers)), Fields: costs}).Policies[0]
	return float64(p.Denied) / float64(p.Requests)
}

var costs = []simulate.Field{{Name: "cost", Source: "tokens"}}

func bucketOf(capacity, refill float64) string {
	return fmt.Sprintf(tokens, policy.FormatNumber(capacity), policy.FormatNumber(refill))
}

// What is suggested denies as little as wished, and one step less denies more. Both are found out by replaying the log under a policy with
// these numbers.
func TestSuggestionsAreTheSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := traffic(t)
		wished := rapid.SampledFrom([]float64{0, 0.01, 0.1, 0.5}).Draw(t, "wished")
		capacity := float64(rapid.IntRange(1, 60).Draw(t, "capacity"))
		refill := float64(rapid.IntRange(1, 300).Draw(t, "refill"))
		r := run(t, log(calls...), simulate.Options{Policies: policies(t, perUser(bucketOf(capacity, refill))), Fields: costs, DenyShare: wished})
		g := r.Policies[0].Suggestion
		require.Equal(t, float64(r.Denied)/float64(len(calls)), g.Now.DenyShare)
		check := func(v *simulate.Variant, lessCapacity, lessRefill float64) {
			require.LessOrEqual(t, v.DenyShare, wished)
			require.Equal(t, v.DenyShare, deniedShare(t, calls, bucketOf(v.Capacity, v.Refill)), "%v", v)
			if lessRefill > 0 {
				require.Greater(t, deniedShare(t, calls, bucketOf(lessCapacity, lessRefill)), wished, "%v", v)
			}
		}
		check(g.Capacity, g.Capacity.Capacity-1, refill)
		if g.Refill != nil {
			check(g.Refill, capacity, g.Refill.Refill-1)
		} else {
			require.Greater(t, deniedShare(t, calls, bucketOf(capacity, 999_999_999_999_999)), wished)
		}
		less := g.Both.Capacity - 1
		check(g.Both, less, math.Ceil(refill*less/capacity*1000)/1000)
		p := rapid.SampledFrom(r.Policies[0].Curve).Draw(t, "point")
		require.Equal(t, p.DenyShare, deniedShare(t, calls, bucketOf(p.Capacity, refill)))
	})
}

func TestSuggestedLimitsAreTheSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		calls := traffic(t)
		wished := rapid.SampledFrom([]float64{0, 0.01, 0.1, 0.5}).Draw(t, "wished")
		log10 := func(limit float64) string {
			return fmt.Sprintf("algorithm: sliding-log, limit: %s, window: 10s", policy.FormatNumber(limit))
		}
		r := run(t, log(calls...), simulate.Options{Policies: policies(t, perUser(log10(7))), Fields: costs, DenyShare: wished})
		v := r.Policies[0].Suggestion.Capacity
		require.LessOrEqual(t, v.DenyShare, wished)
		require.Equal(t, v.DenyShare, deniedShare(t, calls, log10(v.Capacity)))
		require.Greater(t, deniedShare(t, calls, log10(v.Capacity-1)), wished)
	})
}

// Where calls at one instant ask for more than the capacity, no refill helps.
func TestNoRefillHelps(t *testing.T) {
	r := run(t, log(times(10, "a", 0, 0)...), simulate.Options{Policies: policies(t, perUser(bucketOf(5, 60)))})
	g := r.Policies[0].Suggestion
	require.Nil(t, g.Refill)
	require.EqualValues(t, 10, g.Capacity.Capacity)
	require.EqualValues(t, 10, g.Both.Capacity)
	require.EqualValues(t, 120, g.Both.Refill)
}

// The curve begins at 1, ends where nothing is denied, and never rises when every call costs the same.
func TestCurve(t *testing.T) {
	calls := append(times(400, "a", 0, 10*time.Millisecond), times(40, "b", 4*time.Second, time.Second)...)
	r := run(t, log(calls...), simulate.Options{Policies: policies(t, perUser(bucketOf(5, 60)))})
	curve := r.Policies[0].Curve
	require.EqualValues(t, 1, curve[0].Capacity)
	require.Zero(t, curve[len(curve)-1].DenyShare)
	require.Positive(t, curve[len(curve)-2].DenyShare)
	require.LessOrEqual(t, len(curve), 24)
	for i := range curve[1:] {
		require.Greater(t, curve[i+1].Capacity, curve[i].Capacity)
		require.LessOrEqual(t, curve[i+1].DenyShare, curve[i].DenyShare)
	}
}
