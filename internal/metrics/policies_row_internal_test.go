package metrics

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// TestCountersLieInARow: side by side like the policies, as long as those come in the order in which they first came; else each is found by its own.
func TestCountersLieInARow(t *testing.T) {
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprint("m", i)
	}
	p := newPolicies()
	use := func(ids ...string) *table {
		t.Helper()
		var text strings.Builder
		text.WriteString("policies:")
		if len(ids) == 0 {
			text.WriteString(" []")
		}
		text.WriteString("\n")
		for _, id := range ids {
			fmt.Fprintf(&text, "  - {id: %s, match: {}, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, onStoreFailure: open}\n", id)
		}
		set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(text.String())})
		require.NoError(t, err)
		p.use(set)
		table := p.current.Load()
		for i, id := range ids {
			require.Equal(t, id, table.rows[i].id)
			require.Same(t, p.byID[id].usual, table.counter(i))
		}
		require.Len(t, p.byID, len(ids))
		return table
	}
	first := use("a", "b")
	require.NotNil(t, first.usual)
	first.counter(1).Add(1)
	for _, tt := range []struct {
		name string
		ids  []string
		row  bool
	}{
		{"the same", []string{"a", "b"}, true},
		{"one at the end", []string{"a", "b", "c"}, true},
		{"one less there", []string{"a", "b"}, true},
		{"another order", []string{"b", "a"}, false},
		{"one in between", []string{"a", "d", "b"}, false},
		{"more than there is room for", append([]string{"a", "b"}, many...), false},
		{"others", append([]string{"z"}, many[:500]...), false},
		{"all others", []string{"x", "y"}, true},
		{"none", nil, true},
		{"after none", many, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			table := use(tt.ids...)
			require.Equal(t, tt.row, table.usual != nil)
			for i, id := range tt.ids {
				want := uint64(0)
				if id == "b" {
					want = 1
				}
				require.Equal(t, want, table.counter(i).Load())
			}
		})
	}
}
