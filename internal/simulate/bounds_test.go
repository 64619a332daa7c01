package simulate_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/simulate"
)

// A log with more demand than may be kept gives an estimate, and says so.
func TestDemandIsBounded(t *testing.T) {
	var calls []call
	for i := range 2000 {
		calls = append(calls, call{at: time.Duration(i) * time.Millisecond, user: fmt.Sprint(i % 200)})
	}
	o := simulate.Options{Policies: policies(t, perUser(fmt.Sprintf(tokens, "5", "1"))), MaxEvents: 600}
	r := run(t, log(calls...), o)
	require.EqualValues(t, 1000, r.Denied)
	g := r.Policies[0].Suggestion
	require.LessOrEqual(t, g.Requests, int64(600))
	require.Less(t, g.KeptKeys, 1.0)
	require.False(t, g.Cut)
	require.EqualValues(t, 10, g.Capacity.Capacity, "every key asks 10 times")
	require.Contains(t, textOf(t, r), "api: an estimate, from 1 in ")

	// One key asks for nearly all: no half of the keys would tell of the other.
	calls = append(times(10, "other", 0, 0), times(1000, "one", 0, time.Millisecond)...)
	r = run(t, log(calls...), o)
	g = r.Policies[0].Suggestion
	require.True(t, g.Cut)
	require.EqualValues(t, 1, g.KeptKeys)
	require.EqualValues(t, 300, g.Requests)
	require.EqualValues(t, 290, g.Capacity.Capacity)
	require.Contains(t, textOf(t, r), "api: from the first 300 requests only")

	// A policy that is cut off takes nothing from another.
	both := policies(t, perUser(fmt.Sprintf(tokens, "5", "1")), "id: all, key: [], onStoreFailure: open, "+fmt.Sprintf(tokens, "5", "1"))
	calls = nil
	for i := range 1000 {
		calls = append(calls, call{at: time.Duration(i) * time.Millisecond, user: fmt.Sprint(i % 200)})
	}
	r = run(t, log(calls...), simulate.Options{Policies: both, MaxEvents: 600})
	require.False(t, r.Policies[0].Suggestion.Cut)
	require.EqualValues(t, 5, r.Policies[0].Suggestion.Capacity.Capacity)
	require.Less(t, r.Policies[0].Suggestion.KeptKeys, 1.0)
	require.True(t, r.Policies[1].Suggestion.Cut)
}
