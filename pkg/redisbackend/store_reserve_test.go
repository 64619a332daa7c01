package redisbackend_test

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// TestReservations: what a crowd has reserved and settles at once, from several instances and in several slots, comes to exactly what was
// used, or to all that there was.
func TestReservations(t *testing.T) {
	const budget, overdraft = 10_000, 2_000
	cluster := shared.Cluster(t)
	tests := []struct {
		name             string
		estimate, actual int  // at most
		low              bool // actual is how much more is used than estimated, at most
		same             bool // all estimate the same: calls that may travel as one
	}{
		{"all have room", 100, 100, false, false},
		{"all estimate the same", 100, 100, false, true},
		{"more is used than there is", 50, 400, true, false},
	}
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file, err := policy.Parse("policies.yaml", fmt.Appendf(nil, `
policies:
  - {id: tenant-%[1]d, key: [tenant], algorithm: token-bucket, capacity: %[2]d, refillPerDay: 10, charge: postpaid, overdraft: %[3]d, onStoreFailure: closed}
  - {id: model-%[1]d, key: [model], algorithm: token-bucket, capacity: %[2]d, refillPerDay: 10, charge: postpaid, overdraft: %[3]d, onStoreFailure: closed}
`, i, budget, overdraft))
			require.NoError(t, err)
			set, err := policy.NewSet([]*policy.File{file})
			require.NoError(t, err)
			random := mathrand.New(mathrand.NewPCG(1, uint64(i)))
			var instances []*ratelimit.Limiter
			for range 3 {
				store := open(t, redisbackend.Options{URLs: cluster.URLs(), Timeout: patient})
				instances = append(instances, ratelimit.New(ratelimit.Options{Store: store, Policies: set}))
			}
			request := ratelimit.Request{Attributes: map[string]string{"tenant": rand.Text(), "model": rand.Text()}}
			held := make([]*ratelimit.Reservation, 100)
			var wg sync.WaitGroup
			for n := range held {
				r := request
				r.Cost = 1 + random.Uint64N(uint64(tt.estimate))
				if tt.same {
					r.Cost = uint64(tt.estimate)
				}
				wg.Go(func() {
					reservation, err := instances[n%3].Reserve(t.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					held[n] = reservation
				})
			}
			wg.Wait()
			require.False(t, t.Failed())
			var used uint64
			var mu sync.Mutex
			uncharged := map[string]uint64{} // by policy: each settles in an order of its own
			for _, reservation := range held {
				require.True(t, reservation.Decision.Allowed)
				actual := random.Uint64N(uint64(tt.actual))
				if tt.low {
					actual += uint64(tt.estimate)
				}
				used += actual
				wg.Go(func() {
					settled, err := reservation.Commit(t.Context(), actual)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					for _, c := range settled.Checks {
						uncharged[c.Policy.ID] += c.Result.Uncharged
					}
				})
			}
			wg.Wait()

			want := min(used, budget+overdraft)
			require.Equal(t, tt.low, want < used)
			d, err := instances[0].Peek(t.Context(), request)
			require.NoError(t, err)
			require.Len(t, d.Checks, 2)
			for _, c := range d.Checks {
				require.Equal(t, used, want+uncharged[c.Policy.ID], c.Policy.ID)
				require.InDelta(t, budget-float64(want), c.Result.Remaining, 0.1, c.Policy.ID) // 10 tokens a day come back
			}
		})
	}
}
