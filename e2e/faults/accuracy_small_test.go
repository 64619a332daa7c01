package faults_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// slow has buckets that get nothing back while a history is recorded, so that what a call may be told depends on the order of calls only.
const slow = `
domain: edge
policies:
  - {id: tokens, match: {bucket: tokens}, key: [tenant], algorithm: token-bucket, capacity: 6, refillPerDay: 1, onStoreFailure: closed}
  - {id: log, match: {bucket: log}, key: [tenant], algorithm: sliding-log, limit: 5, window: 24h, onStoreFailure: closed}
  - {id: closed, match: {mode: closed}, key: [tenant], algorithm: token-bucket, capacity: 1000000, refillPerDay: 300, onStoreFailure: closed}
`

// TestSmallHistoriesAreLinearizable: what few callers of three instances are told of a tenant's buckets, which one script call decides on, is what
// they would have been told one after the other, in an order in which no call comes before one that was answered before it was made.
func TestSmallHistoriesAreLinearizable(t *testing.T) {
	l := newLab(t, labSetup{cluster: shared.Cluster(t), policies: slow, timeout: patientTimeout, instances: 3})
	l.warm()
	histories := 40
	if long() {
		histories = 1000
	}
	undecided := 0
	for n := range histories {
		h := recordSmall(l, n)
		if h == nil {
			undecided++ // the machine stood still
			continue
		}
		verdict := porcupine.CheckOperationsTimeout(orderOnly(), h, 30*time.Second)
		require.Equal(t, porcupine.Ok, verdict, "history %d: %v", n, h)
		if n == 0 {
			requireLiesFound(t, h)
		}
	}
	require.Less(t, undecided, histories/2)
}

// requireLiesFound changes one answer after the other.
func requireLiesFound(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	for i, op := range history {
		lie := slices.Clone(op.Output.([]accuracy.Entry))
		for k := range lie {
			lie[k].Passed = !lie[k].Passed
		}
		lied := slices.Clone(history)
		lied[i].Output = lie
		verdict := porcupine.CheckOperationsTimeout(orderOnly(), lied, 30*time.Second)
		require.Equal(t, porcupine.Illegal, verdict, "call %d", i)
	}
}

// recordSmall records what five callers are told of a tenant of their own; nil if something else than the store has decided.
func recordSmall(l *lab, n int) []porcupine.Operation {
	e := &exactness{lab: l, tenants: []string{fmt.Sprint("small-", n, "-", time.Now().UnixNano())}}
	for _, kind := range exactLimits[:2] {
		e.buckets = append(e.buckets, accuracy.Bucket{Key: policy.NewKey(policy.Part{Name: "tenant", Value: e.tenants[0]}, kind.id).String()})
	}
	e.recorder = accuracy.NewRecorder(e.buckets)
	var all sync.WaitGroup
	for caller := range 5 {
		all.Go(func() {
			random, w := rand.New(rand.NewPCG(uint64(n), uint64(caller))), e.recorder.Worker()
			for range 6 {
				parts := []part{{kind: tokensOf, cost: 1 + random.IntN(2)}, {kind: logOf, cost: random.IntN(2)}}
				random.Shuffle(2, func(i, k int) { parts[i], parts[k] = parts[k], parts[i] })
				e.ask(w, random.IntN(1<<20), parts[:1+random.IntN(2)])
			}
		})
	}
	all.Wait()
	return operations(e.recorder.Record().Entries)
}

// operations puts the entries of each call together.
func operations(entries []accuracy.Entry) []porcupine.Operation {
	var all []porcupine.Operation
	for from := 0; from < len(entries); {
		to := from
		for ; to < len(entries) && entries[to].Call == entries[from].Call; to++ {
			if e := &entries[to]; e.Outcome == accuracy.Unknown || e.Source != accuracy.FromStore && e.Source != accuracy.FromCache {
				return nil
			}
		}
		first := entries[from]
		all = append(all, porcupine.Operation{ClientId: int(first.Call / 6), Output: entries[from:to], Call: first.Start, Return: first.End})
		from = to
	}
	return all
}

// orderOnly is a tenant's two buckets, which get nothing back: their state is what they have left, in whole units.
func orderOnly() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return [2]int{6, 5} },
		Step: func(state, _, output any) (bool, any) {
			left, entries := state.([2]int), output.([]accuracy.Entry)
			fits := true
			for _, e := range entries {
				fits = fits && left[e.Bucket] >= int(e.Cost)
			}
			after := left
			for _, e := range entries {
				enough := left[e.Bucket] >= int(e.Cost)
				if e.Passed != fits || e.Outcome == accuracy.Admitted && !enough || e.Outcome == accuracy.Denied && enough {
					return false, nil
				}
				if e.Op == accuracy.Take && fits {
					after[e.Bucket] -= int(e.Cost)
				}
				if e.Left == e.Left && e.Source == accuracy.FromStore && int(e.Left) != after[e.Bucket] {
					return false, nil
				}
			}
			return true, after
		},
	}
}
