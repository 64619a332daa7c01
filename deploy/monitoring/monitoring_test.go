package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// known are the metrics that exist, with their labels. A test of internal/metrics holds the document against the code.
func known(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	metrics := map[string][]string{"process_cpu_seconds_total": nil, "process_resident_memory_bytes": nil, "up": nil}
	for _, row := range regexp.MustCompile("(?m)^\\| `(envoy_rls_\\w+)` \\| (.*?) ?\\| ").FindAllStringSubmatch(string(text), -1) {
		for label := range strings.SplitSeq(row[2], ";") {
			names, _, _ := strings.Cut(label, ":")
			metrics[row[1]] = append(metrics[row[1]], strings.Split(strings.TrimSpace(names), ", ")...)
		}
	}
	require.Greater(t, len(metrics), 40)
	return metrics
}

// faults says what is wrong with an expression: it cannot be parsed, or it asks for metrics or labels that do not exist.
func faults(expr string, metrics map[string][]string) []string {
	for variable, value := range map[string]string{"$__rate_interval": "5m", "$instance": "a", "$policy": "p"} {
		expr = strings.ReplaceAll(expr, variable, value)
	}
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	allowed := []string{"instance", "job", "le", "__name__"}
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		own, exists := metrics[selector.Name]
		if base, cut := strings.CutSuffix(selector.Name, "_bucket"); !exists && cut && strings.HasSuffix(base, "_seconds") {
			own, exists = metrics[base]
		}
		if !exists {
			found = append(found, "no metric "+selector.Name)
		}
		allowed = append(allowed, own...)
		for _, m := range selector.LabelMatchers {
			if exists && !slices.Contains(append([]string{"instance", "job", "le", "__name__"}, own...), m.Name) {
				found = append(found, selector.Name+" has no label "+m.Name)
			}
		}
		return nil
	})
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			for _, name := range a.Grouping {
				if !slices.Contains(allowed, name) {
					found = append(found, "no label "+name)
				}
			}
		}
		return nil
	})
	return found
}

// expressions are the rules' by name; what they record counts as a metric afterwards.
func expressions(t *testing.T, path string, metrics map[string][]string) map[string]string {
	t.Helper()
	rules, err := readRules(path)
	require.NoError(t, err)
	found := map[string]string{}
	for _, r := range rules {
		found[r.Record+r.Alert] = r.Expr
		if r.Record != "" {
			metrics[r.Record] = []string{"policy", "outcome"}
		}
	}
	return found
}

func TestRulesAskForWhatExists(t *testing.T) {
	metrics := known(t)
	for name, expr := range expressions(t, rulesFile, metrics) {
		require.Empty(t, faults(expr, metrics), name)
	}
}

func TestDashboardAsksForWhatExists(t *testing.T) {
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	var b board
	require.NoError(t, json.Unmarshal(text, &b))
	metrics, queries := known(t), 0
	for _, p := range b.Panels {
		for _, q := range p.Targets {
			queries++
			require.Empty(t, faults(q.Expr, metrics), p.Title)
		}
	}
	require.Greater(t, queries, 40)
	for _, v := range b.Templating.List {
		if inner, ok := strings.CutPrefix(v.Query, "label_values("); ok {
			metric, label, _ := strings.Cut(strings.TrimSuffix(inner, ")"), ", ")
			require.Contains(t, metrics, metric)
			require.Contains(t, append(metrics[metric], "instance"), label)
		}
	}
}

// TestDocumentsAskForWhatExists: so do the questions in the documents.
func TestDocumentsAskForWhatExists(t *testing.T) {
	metrics, blocks := known(t), 0
	paths, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, block := range regexp.MustCompile("(?s)```promql\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			for expr := range strings.Lines(block[1]) {
				blocks++
				require.Empty(t, faults(expr, metrics), path)
			}
		}
	}
	require.NotZero(t, blocks)
}

// TestFilesAreCurrent: whoever changes the code runs it, too.
func TestFilesAreCurrent(t *testing.T) {
	board, err := dashboardJSON()
	require.NoError(t, err)
	rules, err := readRules(rulesFile)
	require.NoError(t, err)
	tests, err := rulesTests(rules, alertCases)
	require.NoError(t, err)
	for path, want := range map[string][]byte{dashboardFile: board, rulesTestsFile: tests} {
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), "%s is old: run go run . in deploy/monitoring", path)
	}
}

// TestEveryAlertIsTestedAndExplained: each fires once and once does not, and tells somebody what to do.
func TestEveryAlertIsTestedAndExplained(t *testing.T) {
	runbook, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	rules, err := readRules(rulesFile)
	require.NoError(t, err)
	alerts := map[string]bool{}
	for _, r := range rules {
		if r.Alert == "" {
			continue
		}
		alerts[r.Alert] = true
		for _, fires := range []bool{true, false} {
			require.True(t, slices.ContainsFunc(alertCases, func(c alertCase) bool { return c.alert == r.Alert && c.fires == fires }), "%s: no case with fires = %v", r.Alert, fires)
		}
		require.NotEmpty(t, r.Annotations["summary"], r.Alert)
		require.NotEmpty(t, r.Annotations["description"], r.Alert)
		require.Contains(t, []string{"critical", "warning"}, r.Labels["severity"], r.Alert)
		_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "/docs/runbook.md#")
		require.Equal(t, strings.ToLower(r.Alert), anchor)
		require.Contains(t, string(runbook), "\n## "+r.Alert+"\n")
	}
	for _, heading := range regexp.MustCompile(`(?m)^## (EnvoyRLS\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		require.True(t, alerts[heading[1]], "the runbook explains %s, which does not exist", heading[1])
	}
}

// promtool tests rules by the tests of one file.
func promtool(t *testing.T, rules string, tests []byte) (output string, err error) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("ENVOY_RLS_NEED_PROMTOOL") != "" {
			t.Fatal("promtool is missing: scripts/ci-deps.sh installs it")
		}
		t.Skip("promtool is missing (Debian: apt-get install prometheus)")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "rules_test.yaml"), tests, 0o600))
	out, err := exec.CommandContext(t.Context(), program, "test", "rules", filepath.Join(dir, "rules_test.yaml")).CombinedOutput()
	return string(out), err
}

func rulesText(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	return string(text)
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	tests, err := os.ReadFile(rulesTestsFile)
	require.NoError(t, err)
	out, err := promtool(t, rulesText(t), tests)
	require.NoError(t, err, out)
}

// TestPlantedFaults: a rule that is wrong does not pass the tests of its alert.
func TestPlantedFaults(t *testing.T) {
	good := rulesText(t)
	rules, err := readRules(rulesFile)
	require.NoError(t, err)
	for name, fault := range map[string]struct{ alert, old, planted string }{
		"threshold":           {"DecisionsSlow", "p99_5m > 0.01", "p99_5m > 0.05"},
		"share":               {"NotCounting", "ratio5m < 0.99", "ratio5m < 0.5"},
		"share, eager":        {"NotCounting", "ratio5m < 0.99", "ratio5m < 0.999"},
		"user names":          {"ManyUsernames", "per_address) >= 20", "per_address) >= 30"},
		"user names, eager":   {"ManyUsernames", "per_address) >= 20", "per_address) >= 19"},
		"certificate":         {"CertificateExpiring", "14 * 86400", "7 * 86400"},
		"breaker, half open":  {"BreakerOpen", "breaker_state) >= 1", "breaker_state) == 2"},
		"spike without rate":  {"DenialSpike", "[5m])) > 1\n", "[5m])) > 0\n"},
		"spike without past":  {"DenialSpike", "> 3 * avg_over_time", "> 0 * avg_over_time"},
		"eviction never ends": {"Eviction", "rate(envoy_rls_evicted_tokens_total[5m]) > 0", "envoy_rls_evicted_tokens_total > 0"},
		"versions, impatient": {"VersionsDiffer", "(envoy_rls_policy_set_info)) > 1\n        for: 10m", "(envoy_rls_policy_set_info)) > 1\n        for: 5m"},
		"misspelt metric":     {"ReloadFailing", "envoy_rls_reload_failing ==", "envoy_rls_reload_falling =="},
		"broken PromQL":       {"BreakerOpen", "max by (node) (envoy", "max by (node (envoy"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases := slices.DeleteFunc(slices.Clone(alertCases), func(c alertCase) bool { return c.alert != "EnvoyRLS"+fault.alert })
			tests, err := rulesTests(rules, cases)
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(good, fault.old), fault.old)
			out, err := promtool(t, strings.Replace(good, fault.old, fault.planted, 1), tests)
			require.Error(t, err, out)
		})
	}
}

// TestEveryAlertIsHeldFromBothSides: an alert that never fires does not pass its tests, nor does one that always fires.
func TestEveryAlertIsHeldFromBothSides(t *testing.T) {
	good := rulesText(t)
	rules, err := readRules(rulesFile)
	require.NoError(t, err)
	for _, r := range rules {
		if r.Alert == "" {
			continue
		}
		cases := slices.DeleteFunc(slices.Clone(alertCases), func(c alertCase) bool { return c.alert != r.Alert })
		tests, err := rulesTests(rules, cases)
		require.NoError(t, err)
		line := regexp.MustCompile(`(- alert: ` + r.Alert + `\n +expr: ).*\n`)
		require.Len(t, line.FindAllString(good, -1), 1, r.Alert)
		for name, planted := range map[string]string{"never": "vector(0) > 0", "always": "vector(1)"} {
			t.Run(r.Alert+"/"+name, func(t *testing.T) {
				t.Parallel()
				out, err := promtool(t, line.ReplaceAllString(good, "${1}"+planted+"\n"), tests)
				require.Error(t, err, out)
			})
		}
	}
}

// TestPlantedQueries: a query that is wrong does not pass.
func TestPlantedQueries(t *testing.T) {
	metrics := known(t)
	for expr, fault := range map[string]string{
		`sum(rate(envoy_rls_request_total[5m]))`:                              "no metric envoy_rls_request_total",
		`sum(rate(envoy_rls_requests_total{result="denied"}[5m]))`:            "has no label result",
		`sum by (polcy) (rate(envoy_rls_decisions_total[5m]))`:                "no label polcy",
		`sum(rate(envoy_rls_requests_total[5m])`:                              "unclosed",
		`histogram_quantile(0.9, rate(envoy_rls_store_calls_bucket[5m]))`:     "no metric envoy_rls_store_calls_bucket",
		`envoy_rls_decision_duration_seconds_bucket / envoy_rls_no_such`:      "no metric envoy_rls_no_such",
		`sum(rate(envoy_rls_requests_total{outcome=~"("}[$__rate_interval]))`: "regexp",
	} {
		require.Contains(t, fmt.Sprint(faults(expr, metrics)), fault, expr)
	}
	require.Empty(t, faults(`sum by (node, le) (rate(envoy_rls_store_call_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval]))`, metrics))
}
