package policylint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Whatever two policies ask for, those that one request may meet are neighbours.
func TestNeighboursMissNone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		conditions := []string{"plan: free", "plan: FREE", "plan: [pro, team]", `plan: "*"`, `plan: "p*"`, "plan: absent", "user: a", "user: [A, b]", `user: "*"`}
		lines := []string{"policies:"}
		for i := range rapid.IntRange(1, 12).Draw(t, "policies") {
			match := ""
			if c := rapid.SampledFrom(conditions).Draw(t, "match"); rapid.Bool().Draw(t, "matches") {
				match = ", match: {" + c + "}"
			}
			if rapid.Bool().Draw(t, "lower") {
				match += ", normalize: lower"
			}
			lines = append(lines, fmt.Sprintf("- {id: p%d, key: [ip]%s, algorithm: sliding-log, limit: 1, window: 1s, onStoreFailure: open}", i, match))
		}
		set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(strings.Join(lines, "\n") + "\n")})
		require.NoError(t, err)
		near := newNeighbours(set.Policies())
		for _, p := range set.Policies() {
			for _, q := range set.Policies() {
				if together(p, q) {
					require.True(t, slices.Contains(near.of(p), q), "%s and %s", p.ID, q.ID)
				}
			}
		}
	})
}
