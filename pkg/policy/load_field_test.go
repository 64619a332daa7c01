package policy_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Cases that users of rate limiters have reported.

func TestField_WindowOfAMonthIsRefusedWithTheUnits(t *testing.T) {
	_, err := policy.Parse("a.yaml", []byte(with(logFile, "window: 1mo")))
	require.ErrorContains(t, err, `a.yaml:6:13: window "1mo" has the unknown unit "mo"`)
	require.ErrorContains(t, err, "ms, s, m, h and d")

	file, err := policy.Parse("a.yaml", []byte(with(logFile, "window: 720h")))
	require.NoError(t, err)
	require.Equal(t, (720 * time.Hour).Microseconds(), file.Policies[0].Numbers.Window)
}

func TestField_LimitZeroLoadsAndNegativeDoesNot(t *testing.T) {
	for _, text := range []string{with(logFile, "limit: 0"), with(bucketFile, "capacity: 0")} {
		file, err := policy.Parse("a.yaml", []byte(text))
		require.NoError(t, err)
		require.Zero(t, file.Policies[0].Numbers.Capacity)
	}
	for _, text := range []string{with(logFile, "limit: -1"), with(bucketFile, "capacity: -20"), with(bucketFile, "refillPerMinute: -1")} {
		_, err := policy.Parse("a.yaml", []byte(text))
		require.ErrorContains(t, err, "must not be negative")
	}
}

func TestField_CapacityTimesRate(t *testing.T) {
	rates := map[string]float64{"0.000023148148148": 0.000023148148148, "1": 1, "600000000": 6e8}
	for _, capacity := range []float64{1, 20, 65535, 4294967295, 30000000000} {
		for text, rate := range rates {
			t.Run(fmt.Sprintf("%.0f at %s", capacity, text), func(t *testing.T) {
				file, err := policy.Parse("a.yaml", []byte(with(with(bucketFile, fmt.Sprintf("capacity: %.0f", capacity)), "refillPerMinute: "+text)))
				if minutes := capacity / rate; minutes > 3650*24*60 {
					require.ErrorContains(t, err, "a.yaml:6:22: refillPerMinute: at this refill an empty bucket needs more than ten years to be full")
					return
				}
				require.NoError(t, err)
				require.Equal(t, algorithm.Limits{
					Kind: algorithm.TokenBucket, Capacity: capacity, Rate: algorithm.RatePer(time.Minute, rate),
				}, file.Policies[0].Numbers.Limits)
			})
		}
	}
}

func TestField_OneIDTwiceNamesBothPlaces(t *testing.T) {
	_, err := policy.Parse("a.yaml", []byte(onePolicy("login")+strings.TrimPrefix(onePolicy("login"), "policies:\n")))
	require.ErrorContains(t, err, `a.yaml:3:10: two policies have the id "login" (first at a.yaml:2:10)`)

	dir := t.TempDir()
	a, b := filepath.Join(dir, "a.yaml"), filepath.Join(dir, "b.yaml")
	write(t, a, "domain: one\n"+onePolicy("login"))
	write(t, b, "domain: two\n"+onePolicy("login"))
	_, err = policy.Load(dir)
	require.ErrorContains(t, err, b+`:3:10: two policies have the id "login" (first at `+a+`:3:10)`)
}

// TestField_Misspelt: each with its place and the nearest valid name, and all at once.
func TestField_Misspelt(t *testing.T) {
	_, err := policy.Parse("a.yaml", []byte(`policies:
  - id: one
    key: [ip]
    algoritm: token-bucket
    capcity: 20
    refillPerMinute: 100
    onStoreFailure: Local
  - {id: two, key: [ip], algorithm: sliding-log, limit: 5, window: 1m}
`))
	var faults policy.Faults
	require.ErrorAs(t, err, &faults)
	var got []string
	for _, f := range faults {
		got = append(got, fmt.Sprintf("%v: %s (%s)", f.Pos, f.Message, f.Hint))
	}
	for _, want := range []string{
		`a.yaml:4:5: a policy has no field "algoritm" (did you mean "algorithm"?)`,
		`a.yaml:5:5: a policy has no field "capcity" (did you mean "capacity"?)`,
		`a.yaml:7:21: onStoreFailure cannot be "Local": it is local, open or closed (did you mean "local"?)`,
		`a.yaml:8:5: policy "two" needs onStoreFailure (write onStoreFailure: local, open or closed)`,
	} {
		require.Contains(t, got, want)
	}
}

func TestField_YAMLTraps(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"duplicate key", bucketFile + "    capacity: 30\n", `a.yaml:8:5: "capacity" is written twice, first at a.yaml:5:5`},
		{"duplicate key in brackets", with(bucketFile, "match: {plan: a, plan: b}"), `a.yaml:8:22: "plan" is written twice, first at a.yaml:8:13`},
		{"tab", bucketFile + "\tmode: shadow\n", "a.yaml:8:2: not valid YAML: a tab is not allowed here"},
		{"text", with(bucketFile, `capacity: "100"`), "a.yaml:5:15: capacity must be a number, not text (write 100 without quotes)"},
		{"hexadecimal", with(bucketFile, "capacity: 0x10"), "a.yaml:5:15: capacity must be a number in plain decimal digits (write 16)"},
		{"infinity", with(bucketFile, "refillPerMinute: .inf"), "a.yaml:6:22: refillPerMinute must be a finite number"},
		{"not a number", with(bucketFile, "refillPerMinute: .NaN"), "a.yaml:6:22: refillPerMinute must be a finite number"},
		{"anchor", with(bucketFile, "name: &free free"), "a.yaml:8:11: anchors are not supported"},
		{"alias", with(bucketFile, "name: *free"), "a.yaml:8:11: aliases are not supported"},
		{"merge key", bucketFile + "    <<: {mode: shadow}\n", "a.yaml:8:5: merge keys are not supported"},
		{"unquoted star", with(bucketFile, "match: {plan: *}"), `to match any value write "*" in quotes`},
		{"tag", with(bucketFile, "name: !!str 5"), "a.yaml:8:11: tags are not supported"},
		{"directive", "%YAML 1.2\n---\npolicies: []\n", "a.yaml:1:1: directives are not supported"},
		{"complex key", "? policies\n: []\n", "a.yaml:1:1: complex keys are not supported"},
		{"two documents", "policies: []\n---\npolicies: []\n", "a.yaml:2:1: a policy file is one YAML document"},
		{"after the end", "policies: []\n...\ndomain: edge\n", "a policy file is one YAML document"},
		{"indentation", "policies:\n  - id: a\n   key: [ip]\n", "a.yaml:3:4: not valid YAML"},
		{"open bracket", with(bucketFile, "match: {plan: free"), "not valid YAML"},
		{"open quote", with(bucketFile, `name: "free`), "a.yaml:8:11: not valid YAML: could not find end character of double-quoted text"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policy.Parse("a.yaml", []byte(tt.text))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

func TestField_AliasBombIsRefusedWithinASecond(t *testing.T) {
	bomb := "a0: &a0 [x, x, x, x, x, x, x, x, x]\n"
	for i := range 12 {
		alias := fmt.Sprintf("*a%d", i)
		bomb += fmt.Sprintf("a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(alias+", ", 9), ", "))
	}
	before := processorTime(t)
	_, err := policy.Parse("a.yaml", []byte(bomb+"policies: *a12\n"))
	require.ErrorContains(t, err, "aliases are not supported")
	require.Less(t, processorTime(t)-before, time.Second)
}

// The YAML library recurses, or takes quadratic time, on each of these, so that they must not reach it.
func TestField_DeepAndWideFilesAreRefused(t *testing.T) {
	const n = 20_000
	indentation := ""
	for i := range 100 {
		indentation += strings.Repeat(" ", i) + "a:\n"
	}
	tests := []struct{ name, text, want string }{
		{"lists in brackets", "policies: " + strings.Repeat("[", n) + strings.Repeat("]", n), "nested too deeply"},
		{"mappings in brackets", "policies: " + strings.Repeat("{a: ", n) + strings.Repeat("}", n), "nested too deeply"},
		{"lists in a line", "policies:\n" + strings.Repeat("- ", n), "nested too deeply"},
		{"keys in a line", strings.Repeat("a: ", n), "nested too deeply"},
		{"indentation", indentation, "nested too deeply"},
		{"complex keys", strings.Repeat("? ", n), "complex keys are not supported"},
		{"tags", "policies: " + strings.Repeat("!x ", n), "tags are not supported"},
		{"many keys", strings.Repeat("a: 1\n", n), "too many keys"},
		{"keys without values", "policies:\n" + strings.Repeat("- a:\n", n), "too many fields without a value"},
		{"empty entries", "policies:\n" + strings.Repeat("-\n", n), "too many fields without a value"},
		{"words in braces", "policies: {" + strings.Repeat("a, ", n) + "}", "too many fields without a value"},
		{"commas", "policies: [" + strings.Repeat(",", n) + "]", "too many fields without a value"},
		{"keys without commas", "policies: [" + strings.Repeat("a: 1\n", n) + "]", "a comma is missing"},
		{"documents", strings.Repeat("---\n", n), "one YAML document"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policy.Parse("a.yaml", []byte(tt.text))
			require.ErrorContains(t, err, tt.want)
		})
	}
}

// The guards above must not refuse what people write: 5,000 empty matches, and nested lines after long keys.
func TestGuardsLetLargeFilesPass(t *testing.T) {
	var b strings.Builder
	b.WriteString("policies:\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "-\n  id: p%d\n  match: {}\n  key: []\n  algorithm: sliding-log\n  limit: 1\n  window:\n    1s\n  onStoreFailure:\n    open\n"+
			"  overrides: []\n", i)
	}
	file, err := policy.Parse("a.yaml", []byte(b.String()))
	require.NoError(t, err)
	require.Len(t, file.Policies, 5000)
}
