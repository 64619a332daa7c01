package metrics_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/internal/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// set makes a policy set of policies with these ids, the last one in shadow mode.
func set(t testing.TB, ids ...string) *policy.Set {
	t.Helper()
	var text strings.Builder
	for i, id := range ids {
		fmt.Fprintf(&text, "  - {id: '%s', key: [ip, username], hashTag: tenant, onMissingKey: skip, algorithm: token-bucket, capacity: 5, refillPerMinute: 5, onStoreFailure: open",
			strings.ReplaceAll(id, "'", "''"))
		if i == len(ids)-1 {
			text.WriteString(", mode: shadow")
		}
		text.WriteString("}\n")
	}
	return load(t, text.String())
}

func decision(s *policy.Set, allowed bool, checks ...ratelimit.Check) *ratelimit.Decision {
	return &ratelimit.Decision{Allowed: allowed, DomainKnown: true, Set: s, Checks: checks, Took: 3 * time.Microsecond}
}

func check(p *policy.Policy, outcome ratelimit.Outcome, source ratelimit.Source) ratelimit.Check {
	return ratelimit.Check{Policy: p, Result: ratelimit.Result{Outcome: outcome, Source: source}}
}

// exposed are the lines of the text format that begin with one of the names.
func exposed(t testing.TB, m *metrics.Metrics, names ...string) []string {
	t.Helper()
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	require.Equal(t, 200, answer.Code)
	var lines []string
	for line := range strings.Lines(answer.Body.String()) {
		for _, name := range names {
			if strings.HasPrefix(line, "envoy_rls_"+name) {
				lines = append(lines, strings.TrimSuffix(strings.TrimPrefix(line, "envoy_rls_"), "\n"))
			}
		}
	}
	return lines
}

// happened are those of exposed that are not at 0.
func happened(t testing.TB, m *metrics.Metrics, names ...string) []string {
	t.Helper()
	return slices.DeleteFunc(exposed(t, m, names...), func(line string) bool { return strings.HasSuffix(line, " 0") })
}

// TestStartsAtZero: what can be known beforehand has a series before it happens, whatever else appears when it does.
func TestStartsAtZero(t *testing.T) {
	m := metrics.New(metrics.Options{})
	const numbers = "algorithm: token-bucket, capacity: 5, refillPerMinute: 5, onStoreFailure: open"
	s := load(t, "  - {id: plain, key: [tenant, ip], hashTag: tenant, "+numbers+"}\n"+
		"  - {id: usage, key: [], charge: postpaid, mode: shadow, "+numbers+"}\n")
	m.Use(s)
	require.Equal(t, []string{
		`decisions_total{outcome="allowed",policy="plain",source="store"} 0`,
		`decisions_total{outcome="denied",policy="plain",source="store"} 0`,
		`decisions_total{outcome="shadow-allowed",policy="usage",source="store"} 0`,
		`decisions_total{outcome="shadow-denied",policy="usage",source="store"} 0`,
		`grpc_errors_total{code="InvalidArgument"} 0`,
		`missing_keys_total{attribute="ip",policy="plain"} 0`,
		`missing_keys_total{attribute="tenant",policy="plain"} 0`,
		`uncharged_cost_total{policy="usage"} 0`,
	}, exposed(t, m, "decisions", "grpc", "missing", "uncharged"))

	d := decision(s, true)
	d.Skipped = []ratelimit.Skip{{Policy: s.Policies()[0], Missing: "ip"}}
	m.OnDecision(d)
	m.Use(load(t, "  - {id: plain, key: [username], "+numbers+"}\n"))
	require.Equal(t, []string{
		`missing_keys_total{attribute="ip",policy="plain"} 1`,
		`missing_keys_total{attribute="username",policy="plain"} 0`,
	}, exposed(t, m, "missing"), "of a former key only what happened")
}

func TestDecisions(t *testing.T) {
	m := metrics.New(metrics.Options{})
	s := set(t, "first", "second", "shady")
	first, second, shady := s.Policies()[0], s.Policies()[1], s.Policies()[2]
	m.Use(s)

	m.OnDecision(decision(s, true, check(first, ratelimit.Admitted, ratelimit.FromStore), check(shady, ratelimit.Denied, ratelimit.FromStore)))
	m.OnDecision(decision(s, true, check(first, ratelimit.Admitted, ratelimit.FromOpen), check(shady, ratelimit.Admitted, ratelimit.FromStore)))
	lacking := check(second, ratelimit.Denied, ratelimit.FromMissingKey)
	lacking.Missing = "username"
	m.OnDecision(decision(s, false, ratelimit.Check{Policy: first}, lacking))
	skipped := decision(s, true)
	skipped.Skipped = []ratelimit.Skip{{Policy: second, Missing: "tenant"}, {Policy: second, Missing: "tenant"}}
	m.OnDecision(skipped)
	reported := check(first, ratelimit.Admitted, ratelimit.FromStore)
	reported.Result.Uncharged = 7
	m.OnDecision(decision(s, true, reported))
	m.OnDecision(&ratelimit.Decision{Allowed: true, Set: s})
	m.OnDecision(&ratelimit.Decision{Allowed: true, Set: s, DomainKnown: true, InvalidIPs: 2})

	require.Equal(t, []string{
		`decisions_total{outcome="allowed",policy="first",source="open"} 1`,
		`decisions_total{outcome="allowed",policy="first",source="store"} 2`,
		`decisions_total{outcome="denied",policy="second",source="missing-key"} 1`,
		`decisions_total{outcome="shadow-allowed",policy="shady",source="store"} 1`,
		`decisions_total{outcome="shadow-denied",policy="shady",source="store"} 1`,
		`decisions_total{outcome="unasked",policy="first",source="none"} 1`,
		`invalid_ip_total 2`,
		`missing_keys_total{attribute="tenant",policy="second"} 2`,
		`missing_keys_total{attribute="username",policy="second"} 1`,
		`requests_total{outcome="allowed"} 6`,
		`requests_total{outcome="denied"} 1`,
		`uncharged_cost_total{policy="first"} 7`,
		`unknown_domain_requests_total 1`,
		`unmatched_requests_total 1`,
	}, happened(t, m, "decisions", "invalid", "missing", "requests", "uncharged", "unknown", "unmatched_requests"))
	require.Contains(t, exposed(t, m, "decision_duration"), `decision_duration_seconds_bucket{le="5e-06"} 7`)
}

func TestReload(t *testing.T) {
	failing := true
	m := metrics.New(metrics.Options{ReloadFailing: func() bool { return failing }})
	one := set(t, "stays", "goes", "shady")
	d := decision(one, true, check(one.Policies()[0], ratelimit.Admitted, ratelimit.FromStore),
		check(one.Policies()[1], ratelimit.Admitted, ratelimit.FromStore))
	m.OnDecision(d)
	require.Empty(t, exposed(t, m, "decisions", "policy_set"), "no set is in use")

	m.Use(one)
	m.OnDecision(d)
	m.OnReloadFailed(errors.New("a fault"))
	require.Equal(t, []string{"reload_failing 1", `reload_total{result="failure"} 1`, `reload_total{result="success"} 1`}, exposed(t, m, "reload"))

	two := set(t, "comes", "stays", "shady")
	m.Use(two)
	failing = false
	m.OnDecision(d) // was under way
	late := d.Checks[0]
	late.Policy = two.Policies()[1]
	m.OnDecision(decision(two, true, late))
	require.Equal(t, []string{`decisions_total{outcome="allowed",policy="stays",source="store"} 3`}, happened(t, m, "decisions"),
		"what stays goes on counting, what is gone has no series")
	require.Equal(t, []string{"reload_failing 0", `reload_total{result="failure"} 1`, `reload_total{result="success"} 2`}, exposed(t, m, "reload"))
	require.Equal(t, []string{
		fmt.Sprintf(`policy_set_info{version="%s"} 1`, two.Version()), "policy_set_policies 3",
	}, exposed(t, m, "policy_set_info", "policy_set_policies"))
	require.Len(t, exposed(t, m, "policy_set_loaded_timestamp_seconds"), 1)
}

func TestSkippedUnderAnOldSet(t *testing.T) {
	m := metrics.New(metrics.Options{})
	one, two := set(t, "a", "b"), set(t, "b", "c")
	m.Use(one)
	m.Use(two)
	d := decision(one, true)
	d.Skipped = []ratelimit.Skip{{Policy: one.Policies()[0], Missing: "ip"}, {Policy: one.Policies()[1], Missing: "ip"}}
	m.OnDecision(d)
	require.Equal(t, []string{`missing_keys_total{attribute="ip",policy="b"} 1`}, happened(t, m, "missing"))
}

// TestFirstOnesAtOnce: counters that are made when they are first needed lose nothing of what many callers count then. What was missed of an earlier key
// is still told of.
func TestFirstOnesAtOnce(t *testing.T) {
	const callers = 8
	for range 50 {
		m := metrics.New(metrics.Options{})
		one := set(t, "a", "b")
		m.Use(one)
		a := one.Policies()[0]
		d := decision(one, false, check(a, ratelimit.Denied, ratelimit.FromCache))
		d.Skipped = []ratelimit.Skip{{Policy: a, Missing: "ip"}, {Policy: a, Missing: "username"}, {Policy: a, Missing: "tenant"}}
		var callersDone sync.WaitGroup
		for range callers {
			callersDone.Go(func() { m.OnDecision(d) })
		}
		callersDone.Wait()
		m.Use(load(t, "  - {id: a, key: [ip], algorithm: token-bucket, capacity: 5, refillPerMinute: 5, onStoreFailure: open}\n"))
		require.Equal(t, []string{
			`decisions_total{outcome="denied",policy="a",source="cache"} 8`,
			`missing_keys_total{attribute="ip",policy="a"} 8`,
			`missing_keys_total{attribute="tenant",policy="a"} 8`,
			`missing_keys_total{attribute="username",policy="a"} 8`,
		}, happened(t, m, "decisions", "missing"))
	}
}

func TestHooks(t *testing.T) {
	m := metrics.New(metrics.Options{
		Version: "v1", Commit: "abc", GoVersion: "go1",
		Store: func() metrics.Store {
			return metrics.Store{Buckets: 5, EvictedBuckets: 4, EvictedTokens: 3.5, Overflows: 2, Joined: 1}
		},
	})
	m.OnUnmatched(nil, 3)
	m.OnTruncated(nil)
	m.OnLimitIgnored(nil, 2)
	m.OnGRPCError("InvalidArgument")
	require.Equal(t, []string{
		"buckets 5",
		`build_info{commit="abc",go_version="go1",version="v1"} 1`,
		"evicted_buckets_total 4",
		"evicted_tokens_total 3.5",
		`grpc_errors_total{code="InvalidArgument"} 1`,
		"ignored_descriptor_limits_total 2",
		"joined_log_runs_total 1",
		"overflow_charges_total 2",
		"truncated_requests_total 1",
		"unmatched_descriptors_total 3",
	}, exposed(t, m, "buckets", "build", "evicted", "grpc", "ignored", "joined", "overflow", "truncated", "unmatched_descriptors"))
}

func TestLint(t *testing.T) {
	m := metrics.New(metrics.Options{
		Store: func() metrics.Store { return metrics.Store{} }, ReloadFailing: func() bool { return true },
	})
	s := set(t, "one", "two")
	m.Use(s)
	for o := ratelimit.Outcome(0); o <= ratelimit.Denied; o++ {
		for src := ratelimit.Source(0); src == 0 || src.String() != ""; src++ {
			c := check(s.Policies()[0], o, src)
			c.Missing, c.Result.Uncharged = "ip", 1
			m.OnDecision(decision(s, true, c))
		}
	}
	m.OnGRPCError("Internal")
	problems, err := testutil.GatherAndLint(m.Registry())
	require.NoError(t, err)
	require.Empty(t, problems)
}

// TestField_OddPolicyIDs: policy ids with odd characters are valid labels.
func TestField_OddPolicyIDs(t *testing.T) {
	ids := []string{`quote"quote`, `back\slash`, `{brace}`, `a b`, `it's`, `~!@#$%^&*()`, "plain"}
	m := metrics.New(metrics.Options{})
	s := set(t, ids...)
	m.Use(s)
	for _, p := range s.Policies() {
		m.OnDecision(decision(s, true, check(p, ratelimit.Admitted, ratelimit.FromStore)))
	}
	require.ElementsMatch(t, ids, slices.Compact(slices.Sorted(slices.Values(policyLabels(t, m)))))
}

func policyLabels(t *testing.T, m *metrics.Metrics) []string {
	t.Helper()
	families, err := m.Registry().Gather()
	require.NoError(t, err)
	var ids []string
	for _, family := range families {
		if family.GetName() != "envoy_rls_decisions_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "policy" {
					ids = append(ids, label.GetValue())
				}
			}
		}
	}
	return ids
}
