package memorybackend

import (
	"encoding/binary"
	"math"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// identifyLimits gives the identity of the bucket that closed buckets under the same limits share when there is no room.
func (s *Store) identifyLimits(l algorithm.Limits) policy.Identity {
	var b [1 + 3*8]byte
	b[0] = byte(l.Kind)
	binary.LittleEndian.PutUint64(b[1:], math.Float64bits(l.Capacity))
	binary.LittleEndian.PutUint64(b[9:], math.Float64bits(l.Rate))
	binary.LittleEndian.PutUint64(b[17:], uint64(l.Window))
	return s.ids.Identify(b[:])
}
