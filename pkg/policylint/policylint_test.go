package policylint_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policylint"
)

const bucket = "algorithm: token-bucket, capacity: 10, refillPerMinute: 60, onStoreFailure: open"

func text(path, body string) []policy.Text { return []policy.Text{{Path: path, Data: []byte(body)}} }

// one is a file with the policies, each written without what all of them have.
func one(policies ...string) string {
	var b strings.Builder
	b.WriteString("policies:\n")
	for _, p := range policies {
		b.WriteString("- {" + p + ", " + bucket + "}\n")
	}
	return b.String()
}

// found gives the findings of a rule.
func found(t *testing.T, o policylint.Options, rule policylint.Rule, severity policylint.Severity) []policylint.Finding {
	t.Helper()
	o.Now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	all, err := policylint.Lint(o)
	require.NoError(t, err)
	var list []policylint.Finding
	for _, f := range all {
		if f.Rule == rule && f.Severity == severity {
			list = append(list, f)
		}
	}
	return list
}

func TestPolicies(t *testing.T) {
	override := func(policy, overrides string) string {
		return one("id: a, " + policy + ", overrides: [" + overrides + "]")
	}
	tests := []struct {
		name string
		rule policylint.Rule
		hit  string
		want string
		miss string
	}{
		{
			"counts by what must be absent", policylint.Unreachable, one("id: a, match: {plan: absent}, key: [plan]"),
			"p.yaml:2:19: warning[unreachable]: policy a counts by plan and is for requests without: it never counts one",
			one("id: a, match: {plan: absent}, key: [ip]"),
		},
		{
			"a method beside a route of another", policylint.Unreachable, one(`id: a, match: {route: "GET /x", method: POST}, key: [ip]`),
			"p.yaml:2:19: warning[unreachable]: policy a can never apply: route is composed of method and path",
			one(`id: a, match: {route: "GET /x", method: [POST, GET]}, key: [ip]`),
		},
		{
			"a path beside a route of another", policylint.Unreachable, one(`id: a, match: {route: ["GET /x", "POST /y"], path: "/z*"}, key: [ip]`), "can never apply",
			one(`id: a, match: {route: ["GET /x", "POST /z1"], path: "/z*"}, key: [ip]`),
		},
		{
			"a route's prefix beside another method", policylint.Unreachable, one(`id: a, match: {route: "GET /x/*", method: POST}, key: [ip]`), "can never apply",
			one(`id: a, match: {route: "GET /x/*", method: GET}, key: [ip]`),
		},
		{
			"no route although its parts are there", policylint.Unreachable, one(`id: a, match: {route: absent, method: GET, path: "*"}, key: [ip]`), "can never apply",
			one(`id: a, match: {route: absent, method: GET}, key: [ip]`),
		},
		{
			"an override that has ended", policylint.OverrideUnused, override("key: [ip]", "{match: {ip: 192.0.2.1}, capacity: 1, comment: c, until: 2030-01-01}"),
			"warning[override-unused]: this override of policy a ended at 2030-01-01T00:00:00Z (remove it)",
			override("key: [ip]", "{match: {ip: 192.0.2.1}, capacity: 1, comment: c, until: 2030-01-02}"),
		},
		{
			"an override for what the policy is not for", policylint.OverrideUnused, override("match: {plan: free}, key: [ip, plan]", "{match: {plan: pro}, capacity: 1, comment: c}"),
			"this override can never apply: policy a is for other values of plan",
			override("match: {plan: [free, pro]}, key: [ip, plan]", "{match: {plan: pro}, capacity: 1, comment: c}"),
		},
		{
			"an override behind a wider one", policylint.OverrideUnused, override("key: [user]", `{match: {user: "a*"}, capacity: 1, comment: c}, {match: {user: [ab, ac]}, capacity: 2, comment: c}`),
			"is never reached: the one in line 2 takes all of its requests",
			override("key: [user]", `{match: {user: "a*"}, capacity: 1, comment: c}, {match: {user: [ab, bc]}, capacity: 2, comment: c}`),
		},
		{
			"an override behind one for all", policylint.OverrideUnused, override("key: [user]", `{match: {user: "*"}, capacity: 1, comment: c}, {match: {user: a}, capacity: 2, comment: c}`), "never reached",
			override("key: [user]", `{match: {user: "*"}, capacity: 1, comment: c, until: 2031-01-01}, {match: {user: a}, capacity: 2, comment: c}`),
		},
		{
			"letter case that is folded", policylint.OverrideUnused, override("key: [user], normalize: lower", `{match: {user: A}, capacity: 1, comment: c}, {match: {user: a}, capacity: 2, comment: c}`), "never reached",
			override("key: [user]", `{match: {user: A}, capacity: 1, comment: c}, {match: {user: a}, capacity: 2, comment: c}`),
		},
		{
			"a key that could share a slot", policylint.HashTags, one("id: a, key: [apiKey]", "id: b, key: [tenant]"),
			"p.yaml:2:8: warning[hash-tags]: policies a and b apply to one request and have the hash tags apiKey and tenant",
			one("id: a, key: [apiKey], hashTag: tenant, onMissingKey: skip", "id: b, key: [tenant]"),
		},
		{
			"an attribute of the key that could be the tag", policylint.HashTags, one("id: a, key: [ip, user]", "id: b, key: [user]"), "(write hashTag: user)",
			one("id: a, key: [ip, user]", "id: b, key: [user]", "id: c, key: [ip]"),
		},
		{
			"never in one request", policylint.HashTags, one("id: a, match: {plan: x}, key: [ip, user]", `id: b, match: {plan: ["y", x]}, key: [user]`), "warning",
			one("id: a, match: {plan: x}, key: [ip, user]", `id: b, match: {plan: ["y", z]}, key: [user]`),
		},
		{
			"a raw path under a name of its own", policylint.RawPath, "attributes: {\":path\": resource}\n" + one("id: a, match: {resource: /login}, key: [ip]"),
			"warning[raw-path]: policy a matches resource, the raw path of :path",
			"attributes: {\":path\": path}\n" + one("id: a, match: {path: /login}, key: [ip]"),
		},
		{
			"a raw path in the key", policylint.RawPath, "attributes: {\":path\": resource}\n" + one("id: a, key: [resource]"), "each query string has a bucket of its own",
			"attributes: {\":path\": resource}\n" + one("id: a, key: [ip]"),
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			hits := found(t, policylint.Options{Policies: text("p.yaml", tt.hit)}, tt.rule, policylint.Warning)
			require.Len(t, hits, 1)
			require.Contains(t, hits[0].Error(), tt.want)
			require.Contains(t, hits[0].Error(), "\n", "with its line")
			require.Empty(t, found(t, policylint.Options{Policies: text("p.yaml", tt.miss)}, tt.rule, policylint.Warning), "the near miss")
		})
	}
}

func TestHashTagNote(t *testing.T) {
	o := policylint.Options{Policies: text("p.yaml", one("id: a, key: [ip]", "id: b, key: [tenant]"))}
	notes := found(t, o, policylint.HashTags, policylint.Note)
	require.Len(t, notes, 1)
	require.Contains(t, notes[0].Error(), "p.yaml:2:8: note[hash-tags]: requests are counted under the hash tags ip, tenant")
	o.Policies = text("p.yaml", one("id: a, key: [ip]", "id: b, key: [ip, tenant], hashTag: ip"))
	require.Empty(t, found(t, o, policylint.HashTags, policylint.Note))
}

func TestInstances(t *testing.T) {
	body := "policies:\n" +
		"- {id: a, key: [ip], algorithm: sliding-log, limit: 3, window: 1m, onStoreFailure: local, overrides: [{match: {ip: ::1}, limit: 2, comment: c}]}\n" +
		"- {id: b, key: [ip], algorithm: sliding-log, limit: 1, window: 1m, onStoreFailure: open}\n" +
		"- {id: c, key: [ip], algorithm: sliding-log, limit: 0, window: 1m, onStoreFailure: local}\n"
	for _, tt := range []struct{ instances, want int }{{0, 0}, {1, 0}, {2, 0}, {3, 1}, {4, 2}} {
		o := policylint.Options{Policies: text("p.yaml", body), Instances: tt.instances}
		require.Len(t, found(t, o, policylint.LocalShare, policylint.Warning), tt.want, "%d instances", tt.instances)
	}
}

func TestAgainst(t *testing.T) {
	was := one("id: a, key: [ip]", "id: b, key: [ip]")
	is := "policies:\n- {id: a, key: [ip], algorithm: sliding-log, limit: 3, window: 1m, onStoreFailure: local}\n" +
		"- {id: c, key: [ip], algorithm: sliding-log, limit: 3, window: 1m, onStoreFailure: local}\n"
	o := policylint.Options{Policies: text("p.yaml", is), Against: text("old.yaml", was)}
	hits := found(t, o, policylint.AlgorithmChanged, policylint.Warning)
	require.Len(t, hits, 1)
	require.Contains(t, hits[0].Error(), "p.yaml:2:8: warning[algorithm-changed]: policy a changes from token-bucket to sliding-log")
	o.Against = text("old.yaml", is)
	require.Empty(t, found(t, o, policylint.AlgorithmChanged, policylint.Warning))
}
