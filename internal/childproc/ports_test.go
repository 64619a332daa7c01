package childproc_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/childproc"
)

// TestFreePortIsAnotherOneEachTime: whoever starts a server asks for several before anything listens on them.
func TestFreePortIsAnotherOneEachTime(t *testing.T) {
	seen := map[int]bool{}
	for range 1000 {
		port, err := childproc.FreePort(t.Context())
		require.NoError(t, err)
		require.False(t, seen[port], "port %d came twice", port)
		seen[port] = true
	}
}
