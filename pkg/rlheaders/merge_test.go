package rlheaders_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/rlheaders"
)

func TestMerge(t *testing.T) {
	tests := []struct {
		name  string
		own   string
		lines []string
		want  string
	}{
		{"alone", `"user";r=4;t=60`, nil, `"user";r=4;t=60`},
		{"two names", `"user";r=4;t=60`, []string{`"free";r=19;t=12`}, `"user";r=4;t=60, "free";r=19;t=12`},
		{"several lines", `"a";r=1`, []string{`"b";r=2, "c";r=3`, `"d";r=4`}, `"a";r=1, "b";r=2, "c";r=3, "d";r=4`},
		{"one name, theirs has less", `"user";r=4;t=60`, []string{`"user";r=3;t=61`}, `"user";r=3;t=61`},
		{"one name, ours has less", `"user";r=2;t=60`, []string{`"user";r=3;t=61`}, `"user";r=2;t=60`},
		{"one name, policies", `"user";q=5;w=60`, []string{`"user";q=9;w=1, "free";q=20;w=12`}, `"user";q=5;w=60, "free";q=20;w=12`},
		{"one name twice among theirs", `"user";r=2`, []string{`"free";r=9`, `"free";r=7`}, `"user";r=2, "free";r=7`},
		{"ours again", `"a";r=1, "b";r=2`, []string{`"a";r=1, "b";r=2`}, `"a";r=1, "b";r=2`},
		{"told of elsewhere", `"user";r=2`, []string{`"gateway";r=9, "free";r=7`}, `"user";r=2, "free";r=7`},
		{"unknown parameters stay", `"user";r=2`, []string{`"free";r=7;pk=:YQ==:;x`}, `"user";r=2, "free";r=7;pk=:YQ==:;x`},
		{"an older draft's form", `"user";r=2`, []string{`limit=100, remaining=50, reset=50`}, `"user";r=2`},
		{"no list", `"user";r=2`, []string{`"free";r=7`, `"fre`}, `"user";r=2`},
		{"no names", `"user";r=2`, []string{`free;r=7, 12, ("x" "y")`}, `"user";r=2`},
		{"an r that is no integer", `"user";r=2`, []string{`"user";r="0"`}, `"user";r=2`},
		{"too long", `"user";r=2`, []string{`"free";r=7;x="` + strings.Repeat("x", 8<<10) + `"`}, `"user";r=2`},
		{"nothing of our own", "", []string{`"free";r=7`}, `"free";r=7`},
	}
	r := rlheaders.Renderer{Elsewhere: []string{"gateway"}}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { require.Equal(t, tt.want, r.Merge(tt.own, tt.lines)) })
	}
}

// TestMergeKeepsTheListWhole: whatever others sent, the result is a list in which our own policies appear, and none twice.
func TestMergeKeepsTheListWhole(t *testing.T) {
	names := rapid.SampledFrom([]string{`"a"`, `"b"`, `"c"`, `"d"`})
	number := rapid.StringMatching(`[0-9]{1,3}`)
	item := rapid.Custom(func(t *rapid.T) string { return names.Draw(t, "name") + ";r=" + number.Draw(t, "r") })
	foreign := rapid.OneOf(item, rapid.StringMatching(`[ -~]{0,12}`), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		own := strings.Join(rapid.SliceOfNDistinct(item, 1, 3, func(s string) byte { return s[1] }).Draw(t, "own"), ", ")
		lines := rapid.SliceOf(foreign).Draw(t, "lines")
		merged := new(rlheaders.Renderer).Merge(own, lines)
		list, err := httpsfv.UnmarshalList([]string{merged})
		require.NoError(t, err)
		seen := map[string]bool{}
		for _, member := range list {
			name := member.(httpsfv.Item).Value.(string)
			require.False(t, seen[name], "%q has %q twice", merged, name)
			seen[name] = true
		}
		for item := range strings.SplitSeq(own, ", ") {
			require.True(t, seen[item[1:2]], "%q lacks %s", merged, item)
		}
		require.Equal(t, merged, new(rlheaders.Renderer).Merge(own, []string{merged}), "merging again changes nothing")
	})
}

func TestElsewhere(t *testing.T) {
	set := load(t, policies)
	r := rlheaders.Renderer{Elsewhere: []string{"free"}}
	var a rlheaders.Answer
	r.Render(decide(set, left("api-free", 3), left("document", 50)), &a)
	require.Equal(t, `"document";q=100;w=60`, string(a.Policy))
	require.Equal(t, `"document";r=50;t=30`, string(a.RateLimit))
	r.Render(decide(set, denied("api-free", time.Second)), &a)
	require.Empty(t, string(a.Policy))
	require.Contains(t, string(a.Body), `"violated-policies":["free"]`, "who denies says why")
}

func TestReducedStatus(t *testing.T) {
	set := load(t, policies)
	closed := unasked("log", ratelimit.Denied, ratelimit.FromClosed)
	tests := []struct {
		name    string
		reduced int
		checks  []check
		want    int
	}{
		{"allowed", 503, []check{left("api-free", 3)}, 0},
		{"over a limit", 503, []check{denied("api-free", time.Second)}, 429},
		{"store down", 503, []check{closed}, 503},
		{"store down, and over a limit", 503, []check{closed, denied("api-free", time.Second)}, 429},
		{"store down, by default", 0, []check{closed}, 429},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := rlheaders.Renderer{ReducedStatus: tt.reduced}
			var a rlheaders.Answer
			r.Render(decide(set, tt.checks...), &a)
			require.Equal(t, tt.want, a.Status)
			if tt.want > 0 {
				require.Contains(t, string(a.Body), fmt.Sprintf(`,"status":%d,`, tt.want))
			}
		})
	}
}
