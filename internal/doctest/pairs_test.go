package doctest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// snippet is what the README's part of an Envoy configuration says about descriptors.
type snippet struct {
	RateLimits []rateLimit `yaml:"rate_limits"`
	Routes     []struct {
		Match struct{ Path string }
		Route struct {
			RateLimits []rateLimit `yaml:"rate_limits"`
		}
	}
}

type rateLimit struct{ Actions []map[string]map[string]any }

// request is one that Envoy could get.
type request struct {
	headers  map[string]string // :method and :path, too
	username string            // in the JSON body
}

// entry is one of a descriptor.
type entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ask gives Envoy's RateLimitRequest for r in JSON.
func (s snippet) ask(r request) (string, error) {
	limits := s.RateLimits
	for _, route := range s.Routes {
		if route.Match.Path == r.headers[":path"] {
			limits = append(limits[:len(limits):len(limits)], route.Route.RateLimits...)
		}
	}
	type descriptor struct {
		Entries []entry `json:"entries"`
	}
	var descriptors []descriptor
	for _, limit := range limits {
		entries, err := limit.entries(r)
		if err != nil {
			return "", err
		}
		if len(entries) > 0 {
			descriptors = append(descriptors, descriptor{entries})
		}
	}
	text, err := json.Marshal(map[string]any{"domain": "edge", "descriptors": descriptors})
	return string(text), err
}

// entries does what Envoy does: an action that gives nothing drops the whole descriptor.
func (l rateLimit) entries(r request) ([]entry, error) {
	var entries []entry
	for _, action := range l.Actions {
		for kind, with := range action {
			var value string
			var found bool
			key, _ := with["descriptor_key"].(string)
			switch kind {
			case "remote_address":
				key, value, found = kind, "203.0.113.7", true
			case "request_headers":
				value, found = r.headers[with["header_name"].(string)]
			case "metadata":
				if value, found = r.username, r.username != ""; !found {
					value, found = with["default_value"].(string)
				}
			default:
				return nil, fmt.Errorf("action %s: this test does not know it yet", kind)
			}
			if !found {
				return nil, nil
			}
			entries = append(entries, entry{key, value})
		}
	}
	return entries, nil
}

// readmeYAML gives the only yaml block of a section of the README.
func readmeYAML(t *testing.T, heading string) string {
	t.Helper()
	doc, err := parse("README.md", section(t, readFile(t, "README.md"), heading))
	require.NoError(t, err)
	var found []string
	for _, b := range doc.blocks {
		if b.lang == "yaml" {
			found = append(found, b.body)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}

// explain gives what envoy-rls explain prints.
func explain(t *testing.T, policies, request string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(binaries, "envoy-rls"), "explain", "--policies", policies, "--json", "-")
	cmd.Stdin = strings.NewReader(request)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return string(out)
}

const allowed = "answer if every bucket is full\n  allowed\n"

// What the README shows fits together: with its part of an Envoy configuration, both its policies and the project's own file admit normal
// calls, and count them by the policies that are meant for them.
func TestPoliciesAndEnvoyOfReadmeFit(t *testing.T) {
	var envoy snippet
	require.NoError(t, yaml.Unmarshal([]byte(readmeYAML(t, "Envoy")), &envoy))
	own := filepath.Join(t.TempDir(), "policies.yaml")
	require.NoError(t, os.WriteFile(own, []byte(readmeYAML(t, "Policies")), 0o600))
	shipped := filepath.Join(projectRoot, "config/policies.yaml")

	get := func(plan string) request {
		return request{headers: map[string]string{":method": "GET", ":path": "/", "x-api-key": "k1", "x-plan": plan, "x-tenant": "demo"}}
	}
	post := map[string]string{":method": "POST", ":path": "/auth/login"}
	tests := []struct {
		name     string
		policies string
		request  request
		counted  string // by this policy; empty: by none that has to be
	}{
		{"free, README", own, get("free"), "api-free"},
		{"free, project", shipped, get("free"), "api-free"},
		{"pro, project", shipped, get("pro"), "api-pro"},
		{"login, README", own, request{post, "ann"}, "login"},
		{"login, project", shipped, request{post, "ann"}, "login"},
		{"login without a name, README", own, request{post, ""}, "login"},
		{"login without a name, project", shipped, request{post, ""}, "login-per-username"},
		{"nobody, README", own, request{headers: map[string]string{":method": "GET", ":path": "/"}}, ""},
		{"nobody, project", shipped, request{headers: map[string]string{":method": "GET", ":path": "/"}}, "edge-ip"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			asked, err := envoy.ask(test.request)
			require.NoError(t, err)
			out := explain(t, test.policies, asked)
			require.Contains(t, out, allowed, out)
			if test.counted != "" {
				require.Regexp(t, `(?m)^  `+regexp.QuoteMeta(test.counted)+`  .*\n    key `, out)
			}
		})
	}
}

// The test above would notice what is left out.
func TestPairsHaveNothingToSpare(t *testing.T) {
	var envoy snippet
	require.NoError(t, yaml.Unmarshal([]byte(readmeYAML(t, "Envoy")), &envoy))
	shipped := filepath.Join(projectRoot, "config/policies.yaml")
	free := request{headers: map[string]string{"x-api-key": "k1", "x-plan": "free", "x-tenant": "demo"}}
	for _, left := range []string{"x-api-key", "x-tenant"} {
		headers := maps.Clone(free.headers)
		delete(headers, left)
		asked, err := envoy.ask(request{headers: headers})
		require.NoError(t, err)
		require.NotContains(t, explain(t, shipped, asked), allowed, "without %s", left)
	}
	asked, err := snippet{RateLimits: envoy.RateLimits}.ask(request{headers: map[string]string{":method": "POST", ":path": "/auth/login"}})
	require.NoError(t, err)
	require.NotContains(t, explain(t, shipped, asked), allowed, "without the login route's own rate limits")
}
