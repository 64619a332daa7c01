package policy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// TestConditionsReadBack: the text of a condition is a line of match that means the same, whatever its values are.
func TestConditionsReadBack(t *testing.T) {
	values := rapid.SampledFrom([]string{
		"free", "Free plan", "absent", "*", "GET /v1/*", "a, b", "x: y", "[x]", "- x", "'", `"`, `\`, "true", "1e3", "é", "x #y", " x ", "a/b", "tab\tx", "new\nline",
	})
	rapid.Check(t, func(t *rapid.T) {
		want := policy.Condition{Attribute: "plan", Kind: policy.ConditionKind(rapid.IntRange(1, 4).Draw(t, "kind"))}
		switch want.Kind {
		case policy.AnyOf:
			want.Values = rapid.SliceOfNDistinct(values, 1, 3, rapid.ID).Draw(t, "values")
			if len(want.Values) > 1 { // a list of several holds no stars
				want.Values = slices.DeleteFunc(want.Values, func(v string) bool { return strings.HasSuffix(v, "*") })
			}
			if len(want.Values) == 0 {
				want.Values = []string{"free"}
			}
		case policy.Prefix:
			want.Values = []string{rapid.SampledFrom([]string{"GET /v1/", "x: ", "é", "-"}).Draw(t, "prefix")}
		}
		file, err := policy.Parse("p.yaml", []byte(fmt.Sprintf(
			"policies:\n  - {id: p, match: { %s }, key: [], algorithm: sliding-log, limit: 1, window: 1s, onStoreFailure: open}\n", want)))
		require.NoError(t, err, want.String())
		got := file.Policies[0].Match[0]
		got.Pos = policy.Position{}
		require.Equal(t, want, got, want.String())
	})
}

func TestNumbersInWords(t *testing.T) {
	set, err := policy.Load("testdata/valid/numbers.yaml")
	require.NoError(t, err)
	var got []string
	for _, p := range set.Policies() {
		got = append(got, p.Numbers.String())
	}
	require.Contains(t, strings.Join(got, "\n"), "token-bucket: capacity ")
	require.Contains(t, strings.Join(got, "\n"), ", refillPer")
	require.Contains(t, strings.Join(got, "\n"), "sliding-log: limit ")
}

func TestWords(t *testing.T) {
	require.Equal(t, "local open closed", fmt.Sprint(policy.Local, policy.Open, policy.Closed))
	require.Equal(t, "skip deny", fmt.Sprint(policy.SkipPolicy, policy.DenyRequest))
	require.Equal(t, "always onReject never", fmt.Sprint(policy.ExposeAlways, policy.ExposeOnReject, policy.ExposeNever))
	require.Equal(t, "burst sustained", fmt.Sprint(policy.AdvertiseBurst, policy.AdvertiseSustained))
	require.Equal(t, "enforce shadow", fmt.Sprint(policy.Enforce, policy.Shadow))
	require.Equal(t, "prepaid postpaid", fmt.Sprint(policy.Prepaid, policy.Postpaid))
	require.Equal(t, "none lower", fmt.Sprint(policy.NormalizeNone, policy.NormalizeLower))
	require.Equal(t, "Second Minute Hour Day ", fmt.Sprint(policy.PerSecond, policy.PerMinute, policy.PerHour, policy.PerDay, policy.Unit(0)))
	require.Empty(t, policy.FailureMode(0).String())
}
