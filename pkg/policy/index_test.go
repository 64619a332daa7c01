package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestField_TenThousandPolicies: of ten thousand policies a request asks as many as of ten: those that can match.
func TestField_TenThousandPolicies(t *testing.T) {
	for _, n := range []int{10, 10_000} {
		var b strings.Builder
		b.WriteString("policies:\n")
		for i := range n {
			match := []string{"{tenant: t%d}", "{tenant: t%d, plan: free}", `{path: "/t%d/*"}`, "{plan: [p%d, free]}"}[i%4]
			if i%4 == 3 && i > 10 {
				match = "{plan: [p%d, gold]}"
			}
			fmt.Fprintf(&b, "  - {id: p%d, match: %s, key: [tenant], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", i, fmt.Sprintf(match, i))
		}
		f, err := Parse("policies.yaml", []byte(b.String()))
		require.NoError(t, err)
		s, err := NewSet([]*File{f})
		require.NoError(t, err)
		var a Attributes
		a.Reset(s.View(nil))
		a.Add(0, []byte("tenant"), []byte("t4"))
		a.Add(0, []byte("plan"), []byte("free"))
		a.Add(0, []byte("path"), []byte("/t2/x"))
		candidates, found := a.candidates()
		require.True(t, found)
		require.Len(t, candidates, 4, "%d policies", n) // p2, p3, p4, p7
		require.Len(t, a.Match(nil), 4, "%d policies", n)
	}
}
