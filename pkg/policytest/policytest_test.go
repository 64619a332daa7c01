package policytest_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policytest"
)

const policies = `
domain: edge
policies:
  - {id: free, match: {plan: free}, key: [ip], algorithm: token-bucket, capacity: 3, refillPerMinute: 60, onStoreFailure: local,
     overrides: [{match: {ip: 192.0.2.9}, capacity: 5, until: 2030-01-01T00:00:10Z, comment: asked for}]}
  - {id: login, match: {route: "POST /login"}, key: [user], algorithm: sliding-log, limit: 2, window: 10s, onStoreFailure: closed}
  - {id: tried, match: {route: "POST /login"}, key: [ip], algorithm: token-bucket, capacity: 1, refillPerDay: 1, mode: shadow, onStoreFailure: open}
`

func load(t *testing.T) *policy.Set {
	t.Helper()
	set, err := policy.LoadTexts(policy.Text{Path: "policies.yaml", Data: []byte(policies)})
	require.NoError(t, err)
	return set
}

// one makes a file with one test of these lines.
func one(lines ...string) policy.Text {
	return policy.Text{Path: "a_test.yaml", Data: []byte("now: 2030-01-01T00:00:00Z\ntests:\n- name: one\n  " + strings.Join(lines, "\n  ") + "\n")}
}

func TestRun(t *testing.T) {
	free := "attributes: {plan: free, ip: 192.0.2.1}"
	login := `attributes: {route: "POST /login", ip: 192.0.2.1, user: a}`
	tests := []struct {
		name string
		text policy.Text
		want string // in the fault; empty: it passes
	}{
		{"a burst", one(free, "timeline: [{at: 0s, repeat: 3, expect: allow, remaining: 0}, {at: 0s, expect: deny, by: free, retryAfter: 1s}]"), ""},
		{"one too many", one(free, "timeline: [{at: 0s, repeat: 4, expect: allow}]"), "a_test.yaml:5:42: call 4 of 4, at 0s: expected allow, got deny by free, retry after 1s\n"},
		{"one too few", one(free, "timeline: [{at: 0s, repeat: 3, expect: deny}]"), "call 1 of 3, at 0s: expected deny, got allow"},
		{"refill is exact", one(free, "timeline: [{at: 0s, repeat: 3, expect: allow}, {at: 999999us, expect: deny}]"), `unknown unit "us"`},
		{"the moment of a token", one(free, "timeline: [{at: 0s, repeat: 3, expect: allow}, {at: 999.999ms, expect: deny}, {at: 1s, expect: allow}]"), ""},
		{"an interval", one(free, "timeline: [{at: 0s, repeat: 100, every: 1s, expect: allow, remaining: 2}]"), ""},
		{"by another", one(free, "timeline: [{at: 0s, repeat: 3, expect: allow}, {at: 0s, expect: deny, by: login}]"), "expected login, got free"},
		{"remaining is another", one(free, "timeline: [{at: 0s, expect: allow, remaining: {free: 3}}]"), "a_test.yaml:5:56: at 0s: expected 3 remaining, got 2 remaining"},
		{"remaining of what was not asked", one(free, "timeline: [{at: 0s, expect: allow, remaining: {login: 3}}]"), "got nothing known"},
		{"a cost", one(free, "timeline: [{at: 0s, cost: 2, expect: allow, remaining: 1}, {at: 0s, cost: 2, expect: deny}]"), ""},
		{"a look", one(free, "timeline: [{at: 0s, cost: 0, expect: allow, remaining: 3}, {at: 0s, cost: 0, expect: allow, remaining: 3}]"), ""},
		{"a refund", one(free, "timeline: [{at: 0s, cost: 3, expect: allow}, {at: 0s, cost: 2, refund: true, remaining: 2}]"), ""},
		{"never", one(free, "timeline: [{at: 0s, cost: 6, expect: deny, retryAfter: never}]"), ""},
		{"not never", one(free, "timeline: [{at: 0s, cost: 3, expect: allow}, {at: 0s, cost: 1, expect: deny, retryAfter: never}]"), "expected no retry after, got retry after 1s"},
		{"a window", one(login, "timeline: [{at: 0s, repeat: 2, every: 4s, expect: allow}, {at: 9999ms, expect: deny, by: [login]}, {at: 10s, expect: allow}]"), ""},
		{"shadow", one(login, "timeline: [{at: 0s, repeat: 1, expect: allow, wouldDeny: []}, {at: 0s, expect: allow, wouldDeny: tried}]"), ""},
		{"no shadow", one(login, "timeline: [{at: 0s, expect: allow, wouldDeny: tried}]"), "expected tried, got no policy"},
		{"other attributes", one(login, "timeline: [{at: 0s, repeat: 2, expect: allow}, {at: 0s, attributes: {user: b}, expect: allow}, {at: 0s, expect: deny}]"), ""},
		{"an override", one("attributes: {plan: free, ip: 192.0.2.9}", "timeline: [{at: 0s, repeat: 5, expect: allow}, {at: 0s, expect: deny}]"), ""},
		{"an override that has ended", one("attributes: {plan: free, ip: 192.0.2.9}", "timeline: [{at: 10s, repeat: 3, expect: allow}, {at: 10s, expect: deny}]"), ""},
		{"another domain", one("domain: core", free, "timeline: [{at: 0s, repeat: 9, expect: allow}]"), ""},
		{"several values", one("attributes: {plan: free, ip: [192.0.2.1, 192.0.2.2]}", "timeline: [{at: 0s, repeat: 3, expect: allow}, {at: 0s, expect: deny, by: free}]"), ""},
		{"descriptors", one(`descriptors: [{remote_address: "192.0.2.1:4711"}, {plan: free}]`, "timeline: [{at: 0s, repeat: 3, expect: allow}, {at: 0s, expect: deny}]"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file, err := policytest.Parse(tt.text)
			if err != nil {
				require.NotEmpty(t, tt.want, err)
				require.ErrorContains(t, err, tt.want)
				return
			}
			set := load(t)
			require.NoError(t, file.Check(set))
			results := file.Run(t.Context(), set)
			require.Len(t, results, 1)
			require.Equal(t, tt.want == "", results[0].Passed, results[0].Faults)
			if tt.want != "" {
				require.ErrorContains(t, results[0].Faults, tt.want)
			}
			require.Equal(t, results, file.Run(t.Context(), set), "a test begins with full buckets")
		})
	}
}

func TestFaults(t *testing.T) {
	who := "attributes: {ip: 192.0.2.1}"
	tests := []struct {
		name string
		text policy.Text
		want string
	}{
		{"not YAML", policy.Text{Path: "a_test.yaml", Data: []byte("tests: [")}, "a_test.yaml:1:8: not valid YAML"},
		{"no tests", policy.Text{Path: "a_test.yaml", Data: []byte("policies: x.yaml\n")}, "a file of tests needs a list of tests"},
		{"unknown field", policy.Text{Path: "a_test.yaml", Data: []byte("test: []\n")}, `a_test.yaml:1:1: a file of tests has no field "test" (did you mean "tests"?)`},
		{"no name", policy.Text{Path: "a_test.yaml", Data: []byte("tests: [{attributes: {a: b}, timeline: [{at: 0s, expect: allow}]}]")}, "a test needs a name"},
		{"twice", one(who, who, "timeline: [{at: 0s, expect: allow}]"), `a_test.yaml:5:3: "attributes" is written twice`},
		{"no timeline", one(who), "a test needs a timeline"},
		{"no time", one(who, "timeline: [{expect: allow}]"), "a call needs at"},
		{"a time in words", one(who, "timeline: [{at: 5 minutes, expect: allow}]"), "(write 5m)"},
		{"backwards", one(who, "timeline: [{at: 0s, repeat: 3, every: 1s, expect: allow}, {at: 1s, expect: allow}]"), "before the previous one has come to its end, at 2s"},
		{"too many calls", one(who, "timeline: [{at: 0s, repeat: 1000000, expect: allow}, {at: 1s, expect: allow}]"), "at most 1000000 calls"},
		{"too long", one(who, "timeline: [{at: 0s, repeat: 1000000, every: 3000d, expect: allow}]"), "within a year"},
		{"repeat 0", one(who, "timeline: [{at: 0s, repeat: 0, expect: allow}]"), "a_test.yaml:5:31: want a whole number from 1 to 1000000"},
		{"a misspelt answer", one(who, "timeline: [{at: 0s, expect: alow}]"), `expect is allow or deny (did you mean "allow"?)`},
		{"allowed by", one(who, "timeline: [{at: 0s, expect: allow, by: free}]"), "by names the policies that deny"},
		{"nothing expected", one(who, "timeline: [{at: 0s}]"), "the call expects nothing"},
		{"half seconds", one(who, "timeline: [{at: 0s, expect: deny, retryAfter: 500ms}]"), "whole seconds"},
		{"attributes and descriptors", one(who, "descriptors: [{a: b}]", "timeline: [{at: 0s, expect: allow}]"), "attributes or descriptors, not both"},
		{"nobody", one("timeline: [{at: 0s, expect: allow}]"), "nothing is known of the request"},
		{"a cost below nothing", one(who, "timeline: [{at: 0s, cost: -1, expect: allow}]"), "cost is a whole number"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := policytest.Parse(tt.text)
			require.ErrorContains(t, err, tt.want)
			var faults policy.Faults
			require.ErrorAs(t, err, &faults)
		})
	}
}

func TestUnknownPolicies(t *testing.T) {
	file, err := policytest.Parse(one("attributes: {plan: free}",
		"timeline: [{at: 0s, expect: deny, by: [free, logim]}, {at: 0s, remaining: {fre: 1}}, {at: 0s, wouldDeny: tried}]"))
	require.NoError(t, err)
	err = file.Check(load(t))
	require.ErrorContains(t, err, `a_test.yaml:5:48: there is no policy "logim" (did you mean "login"?)`)
	require.ErrorContains(t, err, `there is no policy "fre" (did you mean "free"?)`)
	require.Len(t, err, 2)
}

// FuzzParse: whatever a file holds, reading it ends, and what is read can be run.
func FuzzParse(f *testing.F) {
	f.Add(one("attributes: {plan: free, ip: 192.0.2.1}", "timeline: [{at: 0s, repeat: 2, every: 1s, cost: 2, expect: allow, remaining: {free: 1}}]").Data)
	f.Add([]byte("tests: [{name: a, descriptors: [{a: b}], timeline: [{at: 1s, refund: true}]}]"))
	set, err := policy.LoadTexts(policy.Text{Path: "policies.yaml", Data: []byte(policies)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := policytest.Parse(policy.Text{Path: "a_test.yaml", Data: data})
		if err != nil || len(data) > 2000 || strings.Contains(string(data), "00") {
			return
		}
		file.Run(t.Context(), set)
	})
}
