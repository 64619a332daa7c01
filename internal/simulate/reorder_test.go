package simulate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The heap gives lines in order, whatever the order in which they come, and never holds back more than it may.
func TestReorderIsBounded(t *testing.T) {
	q := reorder{slack: 1 << 40}
	for i := range int64(maxWaiting + 100) {
		q.push(&record{at: 1000 - i%7, line: i})
		if r := q.pop(false); r != nil {
			require.EqualValues(t, 994, r.at)
		}
		require.LessOrEqual(t, len(q.heap), maxWaiting)
	}
	last := q.pop(true)
	for r := q.pop(true); r != nil; r = q.pop(true) {
		require.True(t, before(last, r))
		last = r
	}
	require.Empty(t, q.heap)
}

// Clients with long paths fill no memory.
func TestReorderIsBoundedInBytes(t *testing.T) {
	q := reorder{slack: 1 << 40}
	long := make([]byte, 100<<10)
	for i := range int64(2000) {
		q.push(&record{at: i, line: i, text: long})
		if r := q.pop(false); r != nil {
			require.Len(t, r.text, len(long))
		}
		require.LessOrEqual(t, q.bytes, maxWaitingBytes)
	}
	require.Len(t, q.heap, maxWaitingBytes/len(long))
	for q.pop(true) != nil {
		require.GreaterOrEqual(t, q.bytes, 0)
	}
	require.Zero(t, q.bytes)
}
