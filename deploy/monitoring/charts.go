package main

// sections are what the dashboard shows, the most urgent first.
var sections = []section{
	{"Now", []chart{
		{title: "Requests", unit: "reqps", kind: "stat", queries: []query{{`sum(rate(envoy_rls_requests_total{instance=~"$instance"}[$__rate_interval]))`, ""}}},
		{title: "Denied", unit: "percentunit", kind: "stat", queries: []query{{`sum(rate(envoy_rls_requests_total{outcome="denied",instance=~"$instance"}[$__rate_interval])) / sum(rate(envoy_rls_requests_total{instance=~"$instance"}[$__rate_interval]))`, ""}}},
		{title: "Decided by counting", about: "The rest was decided by onStoreFailure.", unit: "percentunit", kind: "stat", queries: []query{{`sum(rate(envoy_rls_decisions_total{source=~"store|cache",instance=~"$instance"}[$__rate_interval])) / sum(rate(envoy_rls_decisions_total{source=~"store|cache|local|open|closed",instance=~"$instance"}[$__rate_interval]))`, ""}}},
		{title: "Decision, p99", unit: "s", kind: "stat", queries: []query{{`histogram_quantile(0.99, sum by (le) (rate(envoy_rls_decision_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, ""}}},
		{title: "Versions in force", about: "More than one for long: an instance has not got a change, or refuses it.", unit: "short", kind: "stat", queries: []query{{`count(count by (version) (envoy_rls_policy_set_info))`, ""}}},
		{title: "Instances", unit: "short", kind: "stat", queries: []query{{`count(envoy_rls_build_info)`, ""}}},
	}},
	{"Decisions", []chart{
		{title: "By outcome", unit: "reqps", queries: []query{{`sum by (outcome) (rate(envoy_rls_requests_total{instance=~"$instance"}[$__rate_interval]))`, "{{outcome}}"}}},
		{title: "By who decided", unit: "ops", queries: []query{{`sum by (source) (rate(envoy_rls_decisions_total{policy=~"$policy",instance=~"$instance"}[$__rate_interval]))`, "{{source}}"}}},
		{title: "Denied, by policy", unit: "ops", queries: []query{{`sum by (policy) (rate(envoy_rls_decisions_total{outcome="denied",policy=~"$policy",instance=~"$instance"}[$__rate_interval]))`, "{{policy}}"}}},
		{title: "Share denied, by policy", unit: "percentunit", queries: []query{{`sum by (policy) (rate(envoy_rls_decisions_total{outcome="denied",policy=~"$policy"}[$__rate_interval])) / sum by (policy) (rate(envoy_rls_decisions_total{outcome=~"allowed|denied",policy=~"$policy"}[$__rate_interval]))`, "{{policy}}"}}},
		{title: "Would be denied, by policy in shadow mode", unit: "percentunit", queries: []query{{`sum by (policy) (rate(envoy_rls_decisions_total{outcome="shadow-denied",policy=~"$policy"}[$__rate_interval])) / sum by (policy) (rate(envoy_rls_decisions_total{outcome=~"shadow-.*",policy=~"$policy"}[$__rate_interval]))`, "{{policy}}"}}},
		{title: "Use, in units of one bucket's sustained rate", about: "Percent of the limit where all clients share a bucket.", unit: "percentunit", queries: []query{
			{`sum by (policy) (rate(envoy_rls_charged_cost_total{policy=~"$policy"}[$__rate_interval])) / max by (policy) (envoy_rls_policy_refill_per_second)`, "{{policy}}"},
			{`sum by (policy) (rate(envoy_rls_charged_cost_total{policy=~"$policy"}[$__rate_interval])) / max by (policy) (envoy_rls_policy_limit / envoy_rls_policy_window_seconds)`, "{{policy}}"},
		}},
		{title: "User names denied to one address within a minute", unit: "short", queries: []query{{`max by (policy) (envoy_rls_denied_usernames_per_address{policy=~"$policy"})`, "{{policy}}"}}},
		{title: "Requests that lack a key", unit: "ops", queries: []query{{`sum by (policy, attribute) (rate(envoy_rls_missing_keys_total{policy=~"$policy"}[$__rate_interval]))`, "{{policy}} {{attribute}}"}}},
		{title: "Odd requests", unit: "reqps", queries: []query{
			{`sum(rate(envoy_rls_unmatched_requests_total[$__rate_interval]))`, "no policy"},
			{`sum(rate(envoy_rls_unmatched_descriptors_total[$__rate_interval]))`, "descriptors without a policy"},
			{`sum(rate(envoy_rls_unknown_domain_requests_total[$__rate_interval]))`, "unknown domain"},
			{`sum(rate(envoy_rls_invalid_ip_total[$__rate_interval]))`, "no address"},
			{`sum(rate(envoy_rls_truncated_requests_total[$__rate_interval]))`, "truncated"},
			{`sum(rate(envoy_rls_grpc_errors_total[$__rate_interval]))`, "answered with an error"},
		}},
	}},
	{"Time", []chart{
		{title: "Decision", unit: "s", wide: true, queries: []query{
			{`histogram_quantile(0.5, sum by (le) (rate(envoy_rls_decision_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p50"},
			{`histogram_quantile(0.95, sum by (le) (rate(envoy_rls_decision_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p95"},
			{`histogram_quantile(0.99, sum by (le) (rate(envoy_rls_decision_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p99"},
		}},
		{title: "Call to Redis, p99 by node", unit: "s", wide: true, queries: []query{{`histogram_quantile(0.99, sum by (le, node) (rate(envoy_rls_store_call_duration_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "{{node}}"}}},
	}},
	{"Redis", []chart{
		{title: "Share of nodes that decide", unit: "percentunit", queries: []query{{`min by (instance) (envoy_rls_store_available{instance=~"$instance"})`, "{{instance}}"}}},
		{title: "Breakers: 0 closed, 1 half open, 2 open", unit: "short", queries: []query{{`max by (node) (envoy_rls_store_breaker_state{instance=~"$instance"})`, "{{node}}"}}},
		{title: "Breakers that opened", unit: "ops", queries: []query{{`sum by (node) (rate(envoy_rls_store_breaker_transitions_total{to="open"}[$__rate_interval]))`, "{{node}}"}}},
		{title: "Calls that were not answered", unit: "ops", queries: []query{{`sum by (node, result) (rate(envoy_rls_store_calls_total{result!="answered",instance=~"$instance"}[$__rate_interval]))`, "{{node}} {{result}}"}}},
		{title: "Buckets decided by onStoreFailure", unit: "ops", queries: []query{{`sum by (mode, reason) (rate(envoy_rls_unanswered_buckets_total[$__rate_interval]))`, "{{mode}} {{reason}}"}}},
		{title: "Calls that wait to be sent", unit: "short", queries: []query{{`sum by (node) (envoy_rls_store_queued_calls)`, "{{node}}"}}},
		{title: "Calls saved", unit: "percentunit", queries: []query{
			{`sum(rate(envoy_rls_store_merged_calls_total[$__rate_interval])) / sum(rate(envoy_rls_store_calls_total{result="answered"}[$__rate_interval]))`, "by merging"},
			{`sum(rate(envoy_rls_decisions_total{source="cache"}[$__rate_interval])) / sum(rate(envoy_rls_decisions_total{source=~"store|cache"}[$__rate_interval]))`, "by the rejection cache"},
		}},
		{title: "Given back", unit: "ops", queries: []query{{`sum by (result) (rate(envoy_rls_store_undos_total[$__rate_interval]))`, "{{result}}"}}},
		{title: "Owed to Redis after a failure", unit: "short", queries: []query{{`sum(envoy_rls_local_owing_buckets)`, "buckets"}}},
	}},
	{"Policies and service", []chart{
		{title: "Version in force", unit: "short", queries: []query{{`count by (version) (envoy_rls_policy_set_info)`, "{{version}}"}}},
		{title: "Overrides in force", unit: "short", queries: []query{{`max by (policy) (envoy_rls_policy_overrides)`, "{{policy}}"}}},
		{title: "Reloads refused", unit: "short", queries: []query{{`sum by (instance) (increase(envoy_rls_reload_total{result="failure"}[$__rate_interval]))`, "{{instance}}"}, {`max by (instance) (envoy_rls_reload_failing)`, "{{instance}}: failing now"}}},
		{title: "Certificates end in", unit: "s", queries: []query{{`min by (use) (envoy_rls_certificate_expiry_timestamp_seconds) - time()`, "{{use}}"}}},
		{title: "Buckets in memory", unit: "short", queries: []query{{`sum by (instance) (envoy_rls_buckets{instance=~"$instance"})`, "{{instance}}"}}},
		{title: "Tokens forgotten for want of room", unit: "ops", queries: []query{{`sum by (instance) (rate(envoy_rls_evicted_tokens_total{instance=~"$instance"}[$__rate_interval]))`, "{{instance}}"}}},
		{title: "CPU", unit: "short", queries: []query{{`rate(process_cpu_seconds_total{instance=~"$instance"}[$__rate_interval]) and on (instance) envoy_rls_build_info`, "{{instance}}"}}},
		{title: "Memory", unit: "bytes", queries: []query{{`process_resident_memory_bytes{instance=~"$instance"} and on (instance) envoy_rls_build_info`, "{{instance}}"}}},
		{title: "Spans lost", unit: "ops", queries: []query{{`sum by (result) (rate(envoy_rls_trace_spans_total{result!="exported"}[$__rate_interval]))`, "{{result}}"}}},
	}},
}
