package policy_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func parseFile(t *testing.T, path string) *policy.File {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	file, err := policy.Parse(path, data)
	require.NoError(t, err)
	return file
}

func TestLoadDocumentExample(t *testing.T) {
	set, err := policy.Load("testdata/document.yaml")
	require.NoError(t, err)
	require.Len(t, set.Policies(), 2)

	free, login := set.Policies()[0], set.Policies()[1]
	require.Equal(t, "api-free", free.ID)
	require.Equal(t, "api-free", free.Name)
	require.Equal(t, []string{"apiKey"}, free.Key)
	require.Equal(t, policy.Local, free.OnStoreFailure)
	require.Equal(t, policy.SkipPolicy, free.OnMissingKey)
	require.Equal(t, algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: 20, Rate: algorithm.RatePer(time.Minute, 100)}, free.Numbers.Limits)
	require.Equal(t, 100.0, free.Numbers.Refill)
	require.Equal(t, policy.PerMinute, free.Numbers.Unit)
	require.Zero(t, free.Numbers.Overdraft)

	require.Equal(t, []string{"ip", "username"}, login.Key)
	require.Equal(t, algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 10, Window: 60e6}, login.Numbers.Limits)
	require.Equal(t, policy.Closed, login.OnStoreFailure)
	require.Equal(t, policy.DenyRequest, login.OnMissingKey)
	require.Equal(t, policy.ExposeAlways, login.Expose)
	require.Equal(t, policy.AdvertiseBurst, login.Advertise)
	require.Equal(t, policy.Enforce, login.Mode)
	require.Equal(t, policy.Prepaid, login.Charge)
	require.Equal(t, policy.NormalizeNone, login.Normalize)
}

func TestLoadDefaultFile(t *testing.T) {
	set, err := policy.Load("../../config")
	require.NoError(t, err)
	byID := map[string]*policy.Policy{}
	for _, p := range set.Policies() {
		byID[p.ID] = p
	}
	require.Equal(t, 20.0, byID["api-free"].Numbers.Capacity)
	require.Equal(t, "free", byID["api-free"].Name)
	require.Equal(t, policy.AdvertiseSustained, byID["api-pro"].Advertise)
	require.Equal(t, policy.Open, byID["search"].OnStoreFailure)
	require.Equal(t, policy.Shadow, byID["writes-per-tenant"].Mode)
	require.Equal(t, 50000.0, byID["model-tokens"].Numbers.Overdraft)
	for _, id := range []string{"login", "login-per-username", "login-per-ip"} {
		require.Equal(t, policy.Closed, byID[id].OnStoreFailure, id)
		require.Equal(t, policy.ExposeNever, byID[id].Expose, id)
	}
}

func TestParseMatch(t *testing.T) {
	file := parseFile(t, "testdata/valid/match.yaml")
	require.Equal(t, "edge", file.Domain)
	require.Equal(t, 56, file.IPv6Prefix)
	require.Equal(t, 5, file.IPv6PrefixPos.Line)

	require.Len(t, file.Attributes, 2)
	require.Equal(t, "tenant", file.Attributes[0].Attribute)
	require.Empty(t, file.Attributes[0].Template)
	require.Equal(t, "who", file.Attributes[1].Name)
	require.Equal(t, "{tenant}/{username}", file.Attributes[1].Template)

	p := file.Policies[0]
	require.Equal(t, "1", p.ID)
	require.Equal(t, "true", p.Name)
	require.Equal(t, "testdata/valid/match.yaml:7:9", p.Pos.String())
	got := map[string]policy.Condition{}
	for _, c := range p.Match {
		require.NotZero(t, c.Pos.Line)
		got[c.Attribute] = policy.Condition{Kind: c.Kind, Values: c.Values}
	}
	require.Equal(t, map[string]policy.Condition{
		"plan":    {Kind: policy.AnyOf, Values: []string{"free"}},
		"region":  {Kind: policy.AnyOf, Values: []string{"eu", "us"}},
		"model":   {Kind: policy.Present},
		"tier":    {Kind: policy.Prefix, Values: []string{"gpt-"}},
		"partner": {Kind: policy.Absent},
		"word":    {Kind: policy.AnyOf, Values: []string{"absent"}},
		"star":    {Kind: policy.AnyOf, Values: []string{"*"}},
		"number":  {Kind: policy.AnyOf, Values: []string{"007"}},
		"flag":    {Kind: policy.AnyOf, Values: []string{"True"}},
	}, got)
}

func TestParseNumbers(t *testing.T) {
	const day = 24 * time.Hour
	want := map[string]algorithm.Limits{
		"zero":     {Kind: algorithm.TokenBucket, Rate: algorithm.RatePer(day, 0.000001)},
		"none":     {Kind: algorithm.SlidingLog, Window: 500_000},
		"largest":  {Kind: algorithm.TokenBucket, Capacity: 999999999999999, Rate: algorithm.RatePer(time.Second, 999999999999999)},
		"slowest":  {Kind: algorithm.TokenBucket, Capacity: 3650, Rate: algorithm.RatePer(day, 1)},
		"decimals": {Kind: algorithm.TokenBucket, Capacity: 20, Rate: algorithm.RatePer(time.Hour, 0.5)},
		"longest":  {Kind: algorithm.SlidingLog, Capacity: 5, Window: (3650 * day).Microseconds()},
		"days": {
			Kind: algorithm.SlidingLog, Capacity: 5,
			Window: (day + 12*time.Hour + 2*time.Hour + 30*time.Minute + 1250*time.Millisecond).Microseconds(),
		},
	}
	file := parseFile(t, "testdata/valid/numbers.yaml")
	require.Len(t, file.Policies, len(want))
	for _, p := range file.Policies {
		require.Equal(t, want[p.ID], p.Numbers.Limits, p.ID)
	}
}

// An override inherits the numbers that it does not write; a default overdraft follows the capacity.
func TestParseOverrides(t *testing.T) {
	file := parseFile(t, "testdata/valid/overrides.yaml")
	bucket, log := file.Policies[0], file.Policies[1]
	require.Equal(t, 20.0, bucket.Numbers.Overdraft)
	require.True(t, log.NoReconcile)
	require.False(t, bucket.NoReconcile)
	require.Equal(t, policy.SkipPolicy, bucket.OnMissingKey, "written beats the default of closed")

	tests := []struct {
		name     string
		got      policy.Override
		capacity float64
		rate     float64
		window   int64
		debt     float64
		until    time.Time
	}{
		{"capacity only", bucket.Overrides[0], 50, algorithm.RatePer(time.Minute, 100), 0, 50, time.Time{}},
		{"refill and overdraft", bucket.Overrides[1], 20, algorithm.RatePer(time.Hour, 10), 0, 7, time.Date(2030, 1, 31, 0, 0, 0, 0, time.UTC)},
		{"time zone", bucket.Overrides[2], 20, algorithm.RatePer(time.Second, 1), 0, 20, time.Date(2030, 1, 31, 17, 0, 0, 0, time.UTC)},
		{"window only", log.Overrides[0], 10, 0, 3600e6, 0, time.Time{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := tt.got.Numbers
			require.Equal(t, tt.capacity, n.Capacity)
			require.Equal(t, tt.rate, n.Rate)
			require.Equal(t, tt.window, n.Window)
			require.Equal(t, tt.debt, n.Overdraft)
			require.True(t, tt.until.Equal(tt.got.Until), "got %v want %v", tt.got.Until, tt.until)
			require.NotEmpty(t, tt.got.Comment)
			require.NotZero(t, tt.got.Pos.Line)
		})
	}
}

// The same file with a byte order mark, with Windows line ends, with both, in JSON's notation.
func TestParseNotations(t *testing.T) {
	plain := "policies:\n  - id: a\n    key: [ip]\n    algorithm: sliding-log\n    limit: 5\n    window: 10s\n    onStoreFailure: open\n"
	windows := strings.ReplaceAll(plain, "\n", "\r\n")
	tests := map[string]string{
		"plain":           plain,
		"byte order mark": "\ufeff" + plain,
		"CR LF":           windows,
		"both":            "\ufeff" + windows,
		"document marks":  "---\n" + plain + "...\n",
		"no last newline": strings.TrimSuffix(plain, "\n"),
		"JSON":            `{"policies": [{"id": "a", "key": ["ip"], "algorithm": "sliding-log", "limit": 5, "window": "10s", "onStoreFailure": "open"}]}`,
		"dashes below":    strings.Replace(plain, "  - id", "  -\n    id", 1),
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			file, err := policy.Parse("a.yaml", []byte(text))
			require.NoError(t, err)
			require.Len(t, file.Policies, 1)
			require.Equal(t, algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: 5, Window: 10e6}, file.Policies[0].Numbers.Limits)
		})
	}
}

// The caller may reuse its buffer.
func TestParseKeepsNoData(t *testing.T) {
	data := []byte("policies: []\n")
	file, err := policy.Parse("a.yaml", data)
	require.NoError(t, err)
	before, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	for i := range data {
		data[i] = 'x'
	}
	after, err := policy.NewSet([]*policy.File{file})
	require.NoError(t, err)
	require.Equal(t, before.Version(), after.Version())
}

func manyPolicies(n int) []byte {
	var b bytes.Buffer
	b.WriteString("policies:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - id: policy-%d\n    match:\n      plan: plan-%d\n    key: [apiKey]\n    hashTag: tenant\n    onMissingKey: deny\n"+
			"    algorithm: token-bucket\n    capacity: 20 # burst\n    refillPerMinute: 100\n    onStoreFailure: local\n"+
			"    overrides:\n      - match: { tenant: acme }\n        capacity: 50\n        comment: one\n", i, i)
	}
	return b.Bytes()
}

// The processor's time is measured, not the clock's: others may use the machine. Without ENVOY_RLS_LONG a fifth must do.
func TestField_TenThousandPoliciesLoadWithinFiveSeconds(t *testing.T) {
	n, limit := 2_000, time.Second
	if os.Getenv("ENVOY_RLS_LONG") != "" {
		n, limit = 5*n, 5*limit
	}
	path := filepath.Join(t.TempDir(), "many.yaml")
	require.NoError(t, os.WriteFile(path, manyPolicies(n), 0o600))
	before := processorTime(t)
	set, err := policy.Load(path)
	took := processorTime(t) - before
	require.NoError(t, err)
	require.Len(t, set.Policies(), n)
	require.Less(t, took, limit)
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func BenchmarkParse10000(b *testing.B) {
	data := manyPolicies(10_000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if _, err := policy.Parse("many.yaml", data); err != nil {
			b.Fatal(err)
		}
	}
}
