package doctest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/policytest"
)

// checkYAML tells by a block's top-level keys what it is: tests, a scenario of the benchmark, a policy file, a whole Envoy configuration or a part of one.
func (c *checker) checkYAML(ctx context.Context, b block) error {
	var content map[string]any
	if err := yaml.Unmarshal([]byte(b.body), &content); err != nil {
		return b.errorf("%w", err)
	}
	switch {
	case content["tests"] != nil:
		if _, err := policytest.Parse(policy.Text{Path: b.file, Data: []byte(b.body)}); err != nil {
			return b.errorf("%w", err)
		}
		return nil
	case content["calls"] != nil:
		scenario, err := bench.Parse(b.file, policy.Text{Path: b.file, Data: []byte(b.body)})
		if err != nil {
			return b.errorf("%w", err)
		}
		b.body = scenario.Policies
		return checkPolicies(b)
	case content["policies"] != nil:
		return checkPolicies(b)
	case content["resources"] != nil: // secrets of Envoy's, which e2e uses
		return nil
	case content["static_resources"] != nil:
		return c.checkEnvoy(ctx, b, b.body)
	default:
		whole, err := completeEnvoy(content)
		if err != nil {
			return b.errorf("%w", err)
		}
		return c.checkEnvoy(ctx, b, whole)
	}
}

func checkPolicies(b block) error {
	file, err := policy.Parse(b.file, []byte(b.body))
	if err == nil {
		_, err = policy.NewSet([]*policy.File{file})
	}
	if err != nil {
		return b.errorf("%w", err)
	}
	return nil
}

// envoyBase is the smallest configuration that a part can be put into.
const envoyBase = `
static_resources:
  listeners:
  - name: http
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: http
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {prefix: /}
                route: {cluster: upstream}
          http_filters: []
  clusters: []
`

const (
	router    = `{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}`
	endpoints = `
- {name: upstream, type: STATIC, load_assignment: {cluster_name: upstream, endpoints: []}}
- name: ratelimit
  type: STATIC
  load_assignment: {cluster_name: ratelimit, endpoints: []}
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config: {http2_protocol_options: {}}
`
)

// completeEnvoy puts a part of an Envoy configuration where it belongs in envoyBase.
func completeEnvoy(part map[string]any) (string, error) {
	var base, routerFilter map[string]any
	var clusters []any
	err := errors.Join(yaml.Unmarshal([]byte(envoyBase), &base), yaml.Unmarshal([]byte(router), &routerFilter),
		yaml.Unmarshal([]byte(endpoints), &clusters))
	if err != nil {
		return "", fmt.Errorf("the test's own configuration: %w", err)
	}
	resources := base["static_resources"].(map[string]any)
	manager := dig(resources, "listeners", 0, "filter_chains", 0, "filters", 0, "typed_config").(map[string]any)
	host := dig(manager, "route_config", "virtual_hosts", 0).(map[string]any)
	var filters []any
	for key, value := range part {
		list, _ := value.([]any)
		switch key {
		case "http_filters":
			filters = list
		case "clusters":
			clusters = replaceNamed(clusters, list)
		case "rate_limits", "routes", "request_headers_to_remove", "typed_per_filter_config":
			host[key] = value
		case "use_remote_address", "xff_num_trusted_hops", "normalize_path", "merge_slashes", "path_with_escaped_slashes_action",
			"strip_any_host_port", "early_header_mutation_extensions", "access_log":
			manager[key] = value
		default:
			return "", fmt.Errorf("top-level key %q: neither a policy file nor a known part of an Envoy configuration", key)
		}
	}
	manager["http_filters"] = append(filters, routerFilter)
	resources["clusters"] = clusters
	whole, err := yaml.Marshal(base)
	return string(whole), err
}

// dig walks down maps and lists.
func dig(value any, path ...any) any {
	for _, step := range path {
		switch step := step.(type) {
		case string:
			value = value.(map[string]any)[step]
		case int:
			value = value.([]any)[step]
		}
	}
	return value
}

// replaceNamed adds clusters, in place of those of the same name.
func replaceNamed(old, added []any) []any {
	names := map[any]bool{}
	for _, cluster := range added {
		names[dig(cluster, "name")] = true
	}
	kept := added
	for _, cluster := range old {
		if !names[dig(cluster, "name")] {
			kept = append(kept, cluster)
		}
	}
	return kept
}

// secrets is where documents have the files of Envoy's certificates.
const secrets = "/etc/envoy/certs"

// withSecrets has a configuration look for its secrets where there are files by those names.
func (c *checker) withSecrets(config string) (string, error) {
	for _, path := range regexp.MustCompile(secrets+`/[a-z]+\.yaml`).FindAllString(config, -1) {
		if err := os.WriteFile(filepath.Join(c.scratch, filepath.Base(path)), []byte("resources: []\n"), 0o600); err != nil {
			return "", err
		}
	}
	return strings.ReplaceAll(config, secrets, c.scratch), nil
}

// checkEnvoy has the real Envoy validate a configuration.
func (c *checker) checkEnvoy(ctx context.Context, b block, config string) error {
	if c.envoy == "" {
		c.skip(b)
		return nil
	}
	config, err := c.withSecrets(config)
	if err != nil {
		return err
	}
	path := filepath.Join(c.scratch, fmt.Sprintf("%s-%d.yaml", strings.ReplaceAll(b.file, "/", "-"), b.line))
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, blockTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, c.envoy, "--mode", "validate", "--service-node", "doctest", "--service-cluster", "doctest", "-l", "error", "-c", path)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return b.errorf("%w\n%s", err, out)
	}
	return nil
}
