package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	"github.com/goccy/go-yaml"
)

// alertCase is what one alert has to do at one time, given what was measured.
type alertCase struct {
	alert  string
	fires  bool
	at     string
	series map[string]string // in promtool's notation, a value a minute
	labels map[string]string // of the alert that fires, severity apart
}

// alertCases are, for each alert, one that it is for, and one that only just is not.
var alertCases = []alertCase{
	{"EnvoyRLSAbsent", true, "10m", map[string]string{`up{instance="a"}`: "1x20"}, nil},
	{"EnvoyRLSAbsent", false, "10m", map[string]string{`envoy_rls_build_info{instance="a"}`: "1x20"}, nil},

	{"EnvoyRLSDecisionsSlow", true, "20m", slow(90, 98, 100), nil},
	{"EnvoyRLSDecisionsSlow", false, "20m", slow(90, 100, 100), nil},

	{"EnvoyRLSNotCounting", true, "20m", sources(980, 20), nil},
	{"EnvoyRLSNotCounting", false, "20m", sources(992, 8), nil},

	{"EnvoyRLSDenialSpike", true, "73m", map[string]string{
		`envoy_rls_decisions_total{policy="free",outcome="allowed",source="store"}`: "0+600x90",
		`envoy_rls_decisions_total{policy="free",outcome="denied",source="store"}`:  "0+6x60 966+600x30",
	}, map[string]string{"policy": "free"}},
	{"EnvoyRLSDenialSpike", false, "73m", map[string]string{ // as ever
		`envoy_rls_decisions_total{policy="free",outcome="allowed",source="store"}`: "0+600x90",
		`envoy_rls_decisions_total{policy="free",outcome="denied",source="store"}`:  "0+600x90",
	}, nil},
	{"EnvoyRLSDenialSpike", false, "73m", map[string]string{ // not worth getting up for
		`envoy_rls_decisions_total{policy="free",outcome="allowed",source="store"}`: "0+6x90",
		`envoy_rls_decisions_total{policy="free",outcome="denied",source="store"}`:  "0+0x60 6+6x30",
	}, nil},

	gauge("EnvoyRLSManyUsernames", true, "6m", `envoy_rls_denied_usernames_per_address{policy="login"}`, "0x5 20x5", "policy", "login"),
	gauge("EnvoyRLSManyUsernames", false, "6m", `envoy_rls_denied_usernames_per_address{policy="login"}`, "0x5 19x5", "", ""),

	gauge("EnvoyRLSBreakerOpen", true, "5m", `envoy_rls_store_breaker_state{node="r1"}`, "0 0 2 2 2 1 2", "node", "r1"),
	gauge("EnvoyRLSBreakerOpen", false, "5m", `envoy_rls_store_breaker_state{node="r1"}`, "0 0 2 0 0 2 0 0", "", ""),

	gauge("EnvoyRLSBreakerFlapping", true, "25m", `envoy_rls_store_breaker_transitions_total{node="r1",to="open"}`, "0+8x30", "node", "r1"),
	gauge("EnvoyRLSBreakerFlapping", false, "25m", `envoy_rls_store_breaker_transitions_total{node="r1",to="open"}`, "0+5x30", "", ""),

	gauge("EnvoyRLSGiveBackFailing", true, "20m", `envoy_rls_store_undos_total{instance="a",result="failed"}`, "0+1x30", "", ""),
	gauge("EnvoyRLSGiveBackFailing", false, "20m", `envoy_rls_store_undos_total{instance="a",result="failed"}`, "7x30", "", ""),

	gauge("EnvoyRLSReloadFailing", true, "10m", `envoy_rls_reload_failing{instance="a"}`, "0 1x20", "instance", "a"),
	gauge("EnvoyRLSReloadFailing", false, "10m", `envoy_rls_reload_failing{instance="a"}`, "0 1x3 0 1x20", "", ""),

	{"EnvoyRLSVersionsDiffer", true, "12m", map[string]string{
		`envoy_rls_policy_set_info{instance="a",version="v1"}`: "1x20", `envoy_rls_policy_set_info{instance="b",version="v2"}`: "1x20",
	}, nil},
	{"EnvoyRLSVersionsDiffer", false, "9m", map[string]string{ // b has some minutes to follow
		`envoy_rls_policy_set_info{instance="a",version="v2"}`: "1x20", `envoy_rls_policy_set_info{instance="b",version="v1"}`: "1x20",
	}, nil},
	{"EnvoyRLSVersionsDiffer", false, "12m", map[string]string{ // all have the same
		`envoy_rls_policy_set_info{instance="a",version="v2"}`: "1x20", `envoy_rls_policy_set_info{instance="b",version="v2"}`: "1x20",
	}, nil},

	gauge("EnvoyRLSPolicySourceDown", true, "10m", `envoy_rls_policy_source_up{instance="a"}`, "1 0x20", "instance", "a"),
	gauge("EnvoyRLSPolicySourceDown", false, "10m", `envoy_rls_policy_source_up{instance="a"}`, "0x4 1 0x20", "", ""),

	gauge("EnvoyRLSEviction", true, "15m", `envoy_rls_evicted_tokens_total{instance="a"}`, "0+0.5x30", "instance", "a"),
	gauge("EnvoyRLSEviction", false, "15m", `envoy_rls_evicted_tokens_total{instance="a"}`, "5x30", "", ""),

	gauge("EnvoyRLSStoreMayEvict", true, "10m", `envoy_rls_store_may_evict{instance="a"}`, "1x20", "", ""),
	gauge("EnvoyRLSStoreMayEvict", false, "10m", `envoy_rls_store_may_evict{instance="a"}`, "0x20", "", ""),

	gauge("EnvoyRLSMissingKeys", true, "15m", `envoy_rls_decisions_total{policy="free",outcome="denied",source="missing-key"}`, "0+1x20", "policy", "free"),
	gauge("EnvoyRLSMissingKeys", false, "15m", `envoy_rls_decisions_total{policy="free",outcome="denied",source="store"}`, "0+1x20", "", ""),

	gauge("EnvoyRLSUnknownDomain", true, "15m", `envoy_rls_unknown_domain_requests_total{instance="a"}`, "0+1x20", "", ""),
	gauge("EnvoyRLSUnknownDomain", false, "15m", `envoy_rls_unknown_domain_requests_total{instance="a"}`, "3x20", "", ""),

	gauge("EnvoyRLSGRPCErrors", true, "15m", `envoy_rls_grpc_errors_total{instance="a",code="InvalidArgument"}`, "0+1x20", "", ""),
	gauge("EnvoyRLSGRPCErrors", false, "15m", `envoy_rls_grpc_errors_total{instance="a",code="InvalidArgument"}`, "3x20", "", ""),

	// The clock of these tests begins at 0: 1209600 is 14 days later.
	gauge("EnvoyRLSCertificateExpiring", true, "2h", `envoy_rls_certificate_expiry_timestamp_seconds{instance="a",use="grpc"}`, "1209600x200", "use", "grpc"),
	gauge("EnvoyRLSCertificateExpiring", false, "2h", `envoy_rls_certificate_expiry_timestamp_seconds{instance="a",use="grpc"}`, "1220000x200", "", ""),

	gauge("EnvoyRLSCertificateReloadFailing", true, "10m", `envoy_rls_certificate_reload_failing{instance="a",use="redis"}`, "1x20", "use", "redis"),
	gauge("EnvoyRLSCertificateReloadFailing", false, "10m", `envoy_rls_certificate_reload_failing{instance="a",use="redis"}`, "1x4 0 1x20", "", ""),

	gauge("EnvoyRLSHandshakesFail", true, "15m", `envoy_rls_tls_handshake_failures_total{instance="a",server="grpc"}`, "0+1x20", "instance", "a"),
	gauge("EnvoyRLSHandshakesFail", false, "15m", `envoy_rls_tls_handshake_failures_total{instance="a",server="admin"}`, "0+1x20", "", ""),

	gauge("EnvoyRLSAdminTokensFailing", true, "10m", `envoy_rls_admin_tokens_failing{instance="a"}`, "0 1x20", "instance", "a"),
	gauge("EnvoyRLSAdminTokensFailing", false, "10m", `envoy_rls_admin_tokens_failing{instance="a"}`, "1x4 0 1x20", "", ""),

	gauge("EnvoyRLSTokensGuessed", true, "8m", `envoy_rls_admin_refused_total{instance="a",reason="too-many"}`, "0x5 1x20", "instance", "a"),
	gauge("EnvoyRLSTokensGuessed", false, "8m", `envoy_rls_admin_refused_total{instance="a",reason="token"}`, "0x5 9x20", "", ""),
}

// gauge is a case of one series.
func gauge(alert string, fires bool, at, series, values, label, value string) alertCase {
	c := alertCase{alert: alert, fires: fires, at: at, series: map[string]string{series: values}}
	if label != "" {
		c.labels = map[string]string{label: value}
	}
	return c
}

// slow has so many decisions a minute within 5, 10 and 20 ms.
func slow(within5, within10, within20 int) map[string]string {
	series := map[string]string{}
	for le, n := range map[string]int{"0.005": within5, "0.01": within10, "0.02": within20, "+Inf": within20} {
		series[fmt.Sprintf("envoy_rls_decision_duration_seconds_bucket{le=%q}", le)] = fmt.Sprintf("0+%dx40", n)
	}
	return series
}

// sources has so many decisions a minute by counting, and by failure modes.
func sources(counted, failed int) map[string]string {
	return map[string]string{
		`envoy_rls_decisions_total{policy="free",outcome="allowed",source="store"}`: fmt.Sprintf("0+%dx30", counted),
		`envoy_rls_decisions_total{policy="free",outcome="allowed",source="local"}`: fmt.Sprintf("0+%dx30", failed),
	}
}

var placeholder = regexp.MustCompile(`\{\{ \$labels\.(\w+) \}\}`)

// rulesTests are cases as promtool reads them, with the texts that the rules have.
func rulesTests(rules []rule, cases []alertCase) ([]byte, error) {
	byName := map[string]rule{}
	for _, r := range rules {
		byName[r.Alert] = r
	}
	tests := make([]any, 0, len(cases))
	for _, c := range cases {
		r, ok := byName[c.alert]
		if !ok {
			return nil, fmt.Errorf("there is no alert %s", c.alert)
		}
		tests = append(tests, c.promtool(r))
	}
	text, err := yaml.Marshal(yaml.MapSlice{
		{Key: "rule_files", Value: []string{"rules.yaml"}}, {Key: "evaluation_interval", Value: "30s"}, {Key: "tests", Value: tests},
	})
	return append([]byte("# Made by deploy/monitoring from its cases.go. Run: promtool test rules rules_test.yaml\n"), text...), err
}

func (c alertCase) promtool(r rule) yaml.MapSlice {
	input := []yaml.MapSlice{}
	for _, name := range slices.Sorted(maps.Keys(c.series)) {
		input = append(input, yaml.MapSlice{{Key: "series", Value: name}, {Key: "values", Value: c.series[name]}})
	}
	expected := []yaml.MapSlice{}
	if c.fires {
		labels, annotations := map[string]string{}, map[string]string{}
		for _, from := range []map[string]string{r.Labels, c.labels} {
			maps.Copy(labels, from)
		}
		for name, text := range r.Annotations {
			annotations[name] = placeholder.ReplaceAllStringFunc(text, func(p string) string { return labels[placeholder.FindStringSubmatch(p)[1]] })
		}
		expected = append(expected, yaml.MapSlice{{Key: "exp_labels", Value: labels}, {Key: "exp_annotations", Value: annotations}})
	}
	return yaml.MapSlice{
		{Key: "interval", Value: "1m"},
		{Key: "input_series", Value: input},
		{Key: "alert_rule_test", Value: []yaml.MapSlice{{{Key: "eval_time", Value: c.at}, {Key: "alertname", Value: c.alert}, {Key: "exp_alerts", Value: expected}}}},
	}
}
