package bench

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	common "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

func parse(text string) (*Scenario, error) {
	return Parse("s", policy.Text{Path: "s.yaml", Data: []byte(text)})
}

const full = `about: all of it
domain: edge
keys: {count: 5_000, draw: zipf, exponent: 1.3}
fill: true
calls:
- {weight: 3, cost: 2, policies: 2, descriptors: [{plan: free, api_key: "k{key}"}, {tenant: "t{key%10}"}]}
- descriptors: [{ip: "10.0.0.1"}]
rates: [25%, 200/s, closed]
workers: 8
connections: 2
duration: 3s
warmUp: 0s
faults: [healthy, shard-killed]
decidedBy: [store, cache]
limit: 100
policies: |
  policies:
manyPolicies: {count: 2, each: "{id: p{i}}"}
`

func TestParse(t *testing.T) {
	s, err := parse(full)
	require.NoError(t, err)
	require.Equal(t, "s", s.Name)
	require.Equal(t, "all of it", s.About)
	require.Equal(t, Keys{Count: 5000, Draw: Zipf, Exponent: 1.3}, s.Keys)
	require.Equal(t, Shape{
		Workers: 8, Connections: 2, Rates: []Rate{{Share: 0.25}, {PerSecond: 200}, {}}, Duration: 3 * time.Second, Faults: []Fault{Healthy, ShardKilled},
	}, s.Load)
	require.Equal(t, []string{"store", "cache"}, s.DecidedBy)
	require.Equal(t, "policies:\n  - {id: p0}\n  - {id: p1}\n", s.Policies)
	require.True(t, s.Fill)
	require.EqualValues(t, 100, s.Limit)
	require.Len(t, s.Calls, 2)
	require.Equal(t, "k{key}", s.Calls[0].Descriptors[0][1].Value.String())

	s, err = parse("calls: [{descriptors: [{a: b}]}]")
	require.NoError(t, err)
	require.Equal(t, Keys{Count: 1, Draw: Uniform}, s.Keys)
	require.Equal(t, Shape{Workers: 64, Connections: 4, Rates: []Rate{{}}, Duration: 10 * time.Second, WarmUp: 2 * time.Second, Faults: []Fault{Healthy}}, s.Load)
	require.Equal(t, 1, s.Calls[0].Weight)
}

func TestParseFaults(t *testing.T) {
	const good = "calls: [{descriptors: [{a: b}]}]\n"
	tests := []struct{ name, text, want string }{
		{"not YAML", "calls: [", "s.yaml:1:8: not valid YAML"},
		{"nothing", "about: x", "calls is a list of at least one"},
		{"unknown field", good + "workrs: 3", `s.yaml:2:1: a scenario has no field "workrs" (did you mean "workers"?)`},
		{"twice", good + "workers: 3\nworkers: 4", `s.yaml:3:1: "workers" is written twice`},
		{"a list", "[]", "a scenario is written as name: value, not as a list"},
		{"no number", good + "workers: many", "s.yaml:2:10: want a whole number from 1 to 10000"},
		{"too many", good + "keys: {count: 1000000000}", "s.yaml:2:15: want a whole number from 1 to 100000000"},
		{"draw", good + "keys: {draw: zipfs}", `s.yaml:2:14: want uniform or zipf or sequence (did you mean "zipf"?)`},
		{"exponent of nothing", good + "keys: {exponent: 2}", "exponent is a number above 1, at most 10, for draw: zipf"},
		{"exponent 1", good + "keys: {draw: zipf, exponent: 1}", "s.yaml:2:30: exponent is a number above 1"},
		{"rate", good + "rates: [fast]", `s.yaml:2:9: "fast" is no rate: write 50%, 20000/s or closed`},
		{"rate below", good + "rates: [-1/s]", "is no rate"},
		{"rate NaN", good + "rates: [NaN/s]", "is no rate"},
		{"no rates", good + "rates: []", "rates is a list of at least one"},
		{"time", good + "duration: 5", "s.yaml:2:11: the time"},
		{"no time", good + "duration: 0s", "s.yaml:2:11: the duration is nothing"},
		{"long time", good + "duration: 400d", "the time is longer than a day"},
		{"fault", good + "faults: [fire]", "s.yaml:2:10: want healthy or shard-killed"},
		{"flag", good + "fill: yes", "want false or true"},
		{"template", "calls: [{descriptors: [{a: 'x{keys}'}]}]", "s.yaml:1:28: {keys}: want {key}"},
		{"brace", "calls: [{descriptors: [{a: 'x{key'}]}]", "the brace is not closed"},
		{"modulo nothing", "calls: [{descriptors: [{a: '{key%0}'}]}]", "times or modulo nothing"},
		{"no descriptor", "calls: [{descriptors: []}]", "descriptors is a list of at least one"},
		{"empty descriptor", "calls: [{descriptors: [{}]}]", "a descriptor is written as {key: value}"},
		{"nested value", "calls: [{descriptors: [{a: {b: c}}]}]", "want a value, not a mapping"},
		{"many of nothing", good + "manyPolicies: {count: 3}", "manyPolicies needs each"},
		{"cost 0", "calls: [{cost: 0, descriptors: [{a: b}]}]", "want a whole number from 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := parse(test.text)
			require.ErrorContains(t, err, test.want)
			var faults policy.Faults
			require.ErrorAs(t, err, &faults)
		})
	}
	_, err := parse("calls: [{descriptors: [{a: 'x{keys}'}], cost: x}]\nworkers: -1\n")
	require.ErrorContains(t, err, "{keys}")
	require.ErrorContains(t, err, "from 1 to 10000", "all faults at once")
}

func TestTemplates(t *testing.T) {
	tests := []struct {
		text string
		key  uint64
		want string
	}{
		{"", 3, ""},
		{"plain", 3, "plain"},
		{"k{key}", 3, "k3"},
		{"{key}{key}", 3, "33"},
		{"t{key%10}x", 123, "t3x"},
		{"{key*50+7}", 3, "157"},
		{"{key*50+7%100}", 3, "57"},
		{"{run}-{key}", 3, "R-3"},
		{"{{key}", 3, "{key}"},
	}
	for _, test := range tests {
		parsed, err := ParseTemplate(test.text)
		require.NoError(t, err, test.text)
		require.Equal(t, test.want, string(parsed.Append(nil, "R", test.key)), test.text)
	}
}

// What is put on the wire is what Envoy's own types read.
func TestCallsAreEnvoys(t *testing.T) {
	s, err := parse(strings.Replace(full, "k{key}", strings.Repeat("k", 300)+"{key}", 1))
	require.NoError(t, err)
	m := s.Make("run", 1).maker(0)
	kinds := [2]int{}
	for range 2000 {
		var got rls.RateLimitRequest
		require.NoError(t, proto.Unmarshal(m.next(), &got))
		if got.HitsAddend == 0 {
			kinds[1]++
			require.Len(t, got.Descriptors, 1)
			continue
		}
		kinds[0]++
		key := strings.TrimLeft(got.Descriptors[0].Entries[1].Value, "k")
		want := &rls.RateLimitRequest{Domain: "edge", HitsAddend: 2, Descriptors: []*common.RateLimitDescriptor{
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "plan", Value: "free"}, {Key: "api_key", Value: strings.Repeat("k", 300) + key}}},
			{Entries: []*common.RateLimitDescriptor_Entry{{Key: "tenant", Value: "t" + key[len(key)-1:]}}},
		}}
		require.True(t, proto.Equal(want, &got), "%v", &got)
	}
	require.InDelta(t, 1500, kinds[0], 120, "weight 3 of 4")
	require.EqualValues(t, []uint64{uint64(kinds[0]), uint64(kinds[1])}, m.made)
}

func TestShippedScenarios(t *testing.T) {
	require.Contains(t, Names(), "one-policy")
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			s, err := Open(name)
			require.NoError(t, err)
			require.NotEmpty(t, s.About)
			set, err := policy.LoadTexts(policy.Text{Path: name, Data: []byte(s.Policies)})
			require.NoError(t, err)
			require.Equal(t, []string{s.Domain}, set.Domains())
			for _, c := range s.Calls {
				require.Positive(t, c.Policies)
			}
		})
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	require.NoError(t, os.WriteFile(path, []byte("calls: [{descriptors: [{a: b}]}]"), 0o600))
	s, err := Open(path)
	require.NoError(t, err)
	require.Equal(t, "mine", s.Name)
	_, err = Open("one-polici")
	require.EqualError(t, err, `there is no scenario "one-polici" (did you mean "one-policy"?)`)
	_, err = Open("./missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}
