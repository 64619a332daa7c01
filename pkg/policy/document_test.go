package policy_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func TestParseDocument(t *testing.T) {
	text := `
base: &base {timeout: 1s, retry: {n: 1}}
list:
- a
- 0x10
empty:
one: {<<: *base, timeout: 2s}
two: *base
`
	n, err := policy.ParseDocument(policy.Text{Path: "e.yaml", Data: []byte(text)}, true)
	require.NoError(t, err)
	require.Equal(t, "2s", n.Get("one", "timeout").String(), "what stands there wins over what is merged")
	require.Equal(t, "1", n.Get("one", "retry", "n").String())
	require.Equal(t, "1s", n.Get("two", "timeout").String())
	require.Equal(t, policy.Position{File: "e.yaml", Line: 7, Column: 27}, n.Get("one", "timeout").Pos)
	require.Equal(t, policy.Null, n.Get("empty").Kind)
	require.Equal(t, "0x10", n.Get("list").Items[1].String())
	require.Nil(t, n.Get("one", "nothing", "more"))
	require.Empty(t, n.Get("list").String())

	for _, tt := range []struct{ name, text, want string }{
		{"aliases that are not allowed", text, "anchors are not supported"},
		{"an anchor that is not there", "a: *b\n", "e.yaml:1:4"},
		{"an anchor within itself", "a: &a [*a]\n", "anchor"},
		{"an alias bomb", bomb(), "aliases make the file too large"},
		{"not text", "a: \x00", "not a text file"},
		{"nothing", "", "the file is empty"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			_, err := policy.ParseDocument(policy.Text{Path: "e.yaml", Data: []byte(tt.text)}, tt.text != text)
			require.ErrorContains(t, err, tt.want)
			require.Less(t, time.Since(began), 30*time.Second)
		})
	}
}

// bomb has ten to the power of twenty values when its aliases are followed.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x]\n")
	for i := range 20 {
		from := string(rune('a'+i)) + "0"
		to := string(rune('b'+i)) + "0"
		b.WriteString(to + ": &" + to + " [" + strings.Repeat("*"+from+", ", 9) + "*" + from + "]\n")
	}
	return b.String()
}

func TestWithClock(t *testing.T) {
	set, err := policy.LoadTexts(policy.Text{Path: "p.yaml", Data: []byte(`policies:
  - {id: a, key: [ip], algorithm: sliding-log, limit: 5, window: 10s, onStoreFailure: open,
     overrides: [{match: {ip: 192.0.2.1}, limit: 9, until: 2030-01-01, comment: c}]}`)})
	require.NoError(t, err)
	for _, tt := range []struct {
		now  time.Time
		want float64
	}{{time.Date(2029, 12, 31, 23, 59, 59, 0, time.UTC), 9}, {time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC), 5}} {
		var a policy.Attributes
		a.Reset(set.WithClock(func() time.Time { return tt.now }).View(nil))
		a.Add(0, []byte("ip"), []byte("192.0.2.1"))
		hits := a.Match(nil)
		require.Len(t, hits, 1)
		require.Equal(t, tt.want, hits[0].Numbers.Capacity)
	}
}
