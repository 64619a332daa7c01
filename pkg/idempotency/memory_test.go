package idempotency_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
	"github.com/envoy-rls/envoy-rls/pkg/idempotency/idempotencytest"
)

func TestMemoryConforms(t *testing.T) {
	idempotencytest.Run(t, func(t *testing.T, test func(*testing.T, idempotencytest.Harness)) {
		synctest.Test(t, func(t *testing.T) {
			test(t, idempotencytest.Harness{Store: idempotency.NewMemory(idempotency.MemoryOptions{}), Advance: time.Sleep})
		})
	})
}

// claimOf is a claim on the i-th key.
func claimOf(i int) idempotency.Claim {
	return idempotency.Claim{Key: idempotency.Key{byte(i), byte(i >> 8)}, Token: idempotency.Token{1}, Lease: time.Minute}
}

// completed reports whether the i-th key has an answer. It leaves no claim.
func completed(t *testing.T, s idempotency.Store, i int) bool {
	t.Helper()
	c := claimOf(i)
	c.Token[0] = 2
	found, err := s.Claim(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, s.Release(t.Context(), c))
	return found.State == idempotency.Completed
}

// TestMemoryMakesRoom: when a store is full what ends first goes, but never what is running.
func TestMemoryMakesRoom(t *testing.T) {
	tests := []struct {
		name    string
		options idempotency.MemoryOptions
		data    int
	}{
		{"entries", idempotency.MemoryOptions{MaxEntries: 3}, 1},
		{"bytes", idempotency.MemoryOptions{MaxBytes: 6000}, 1500},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				evicted := 0
				tt.options.OnEvict = func(n int) { evicted += n }
				s := idempotency.NewMemory(tt.options)
				for i := range 4 {
					ttl := time.Hour - time.Duration(i)*time.Minute
					_, err := s.Claim(t.Context(), claimOf(i))
					require.NoError(t, err)
					require.NoError(t, s.Complete(t.Context(), claimOf(i), idempotency.Answer{Data: make([]byte, tt.data), TTL: ttl}))
				}
				require.Equal(t, 1, evicted)
				require.True(t, completed(t, s, 3), "the newest is there, though it ends first")
				require.False(t, completed(t, s, 2), "it would have ended first of the others")
			})
		})
	}
}

func TestMemoryFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idempotency.NewMemory(idempotency.MemoryOptions{MaxEntries: 2, MaxBytes: 4000})
		for i := range 2 {
			_, err := s.Claim(t.Context(), claimOf(i))
			require.NoError(t, err)
		}
		_, err := s.Claim(t.Context(), claimOf(2))
		require.ErrorIs(t, err, idempotency.ErrFull)
		require.ErrorIs(t, s.Renew(t.Context(), claimOf(2)), idempotency.ErrFull)

		huge := idempotency.Answer{Data: make([]byte, 4000), TTL: time.Hour}
		require.ErrorIs(t, s.Complete(t.Context(), claimOf(0), huge), idempotency.ErrFull)
		other := claimOf(0)
		other.Token[0]++
		found, err := s.Claim(t.Context(), other)
		require.NoError(t, err)
		require.Equal(t, idempotency.Running, found.State, "still taken")

		time.Sleep(time.Minute)
		require.NoError(t, s.Renew(t.Context(), claimOf(3)), "the leases are over")
		found, err = s.Claim(t.Context(), claimOf(2))
		require.NoError(t, err)
		require.Equal(t, idempotency.Claimed, found.State)

		time.Sleep(30 * time.Second)
		require.NoError(t, s.Renew(t.Context(), claimOf(3)))
		time.Sleep(30 * time.Second)
		found, err = s.Claim(t.Context(), claimOf(4))
		require.NoError(t, err)
		require.Equal(t, idempotency.Claimed, found.State, "the one that was not renewed has gone")
		require.NoError(t, s.Complete(t.Context(), claimOf(3), idempotency.Answer{TTL: time.Hour}))
	})
}

// TestMemoryForgets: what is over does not stay, whether or not somebody asks for it.
func TestMemoryForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := idempotency.NewMemory(idempotency.MemoryOptions{})
		for i := range 1000 {
			_, err := s.Claim(t.Context(), claimOf(i))
			require.NoError(t, err)
			if i%2 == 0 {
				require.NoError(t, s.Complete(t.Context(), claimOf(i), idempotency.Answer{TTL: time.Minute}))
			}
		}
		require.Equal(t, 1000, s.Len())
		time.Sleep(time.Minute)
		for i := range 1000 / 16 {
			_, err := s.Claim(t.Context(), claimOf(2000+i))
			require.NoError(t, err)
			require.NoError(t, s.Release(t.Context(), claimOf(2000+i)))
		}
		require.Less(t, s.Len(), 16)
	})
}
