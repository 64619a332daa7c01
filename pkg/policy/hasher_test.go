package policy_test

import (
	"bytes"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// lengths are of short and long keys, and around where one kind becomes the other.
var lengths = []int{0, 1, 16, 60, 127, 128, 129, 130, 500, policy.MaxKeyBytes, 4000}

func TestIdentitiesTellKeysApart(t *testing.T) {
	h := policy.NewHasher()
	seen := map[policy.Identity]int{}
	halves := map[uint64]bool{}
	keys := 0
	for _, n := range lengths {
		key := bytes.Repeat([]byte{'x'}, n)
		for i := range n {
			for _, c := range []byte{'a', 'b', '\x00'} {
				key[i] = c
				id := h.Identify(key)
				require.Equal(t, id, h.Identify(bytes.Clone(key)), "the same bytes, the same identity")
				seen[id]++
				halves[id.A], halves[id.B] = true, true
				keys++
			}
			key[i] = 'x'
		}
	}
	require.Len(t, seen, keys)
	require.Len(t, halves, 2*keys, "each half by itself tells as many apart")
}

func TestIdentitiesAreSecret(t *testing.T) {
	one, other := policy.NewHasher(), policy.NewHasher()
	for _, n := range lengths {
		key := bytes.Repeat([]byte{'x'}, n)
		a, b := one.Identify(key), other.Identify(key)
		require.NotEqual(t, a.A, b.A, "%d bytes", n)
		require.NotEqual(t, a.B, b.B, "%d bytes", n)
		if n > 0 {
			require.NotEqual(t, a.A, a.B, "the halves are not one hash twice")
		}
	}
}

// TestIdentitiesSpread flips one bit of keys and counts how many of the identity's change.
func TestIdentitiesSpread(t *testing.T) {
	h := policy.NewHasher()
	for _, n := range lengths[1:] {
		key := bytes.Repeat([]byte{'x'}, n)
		was, flipped := h.Identify(key), 0
		for i := range 64 {
			key[i%n] ^= 1 << (i % 8)
			id := h.Identify(key)
			flipped += bits.OnesCount64(id.A^was.A) + bits.OnesCount64(id.B^was.B)
			was = id
		}
		require.InDelta(t, 64, float64(flipped)/64, 8, "%d bytes", n)
	}
}

func TestIdentifyingAllocatesNothing(t *testing.T) {
	h := policy.NewHasher()
	for _, n := range []int{16, 128, 129, policy.MaxKeyBytes} {
		key := bytes.Repeat([]byte{'x'}, n)
		require.Zero(t, testing.AllocsPerRun(100, func() { h.Identify(key) }), "%d bytes", n)
	}
}
