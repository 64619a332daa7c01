package e2e_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// TestRecipes starts the real Envoy with each recipe of docs/recipes.md, as it stands there, and makes the requests of its table.
func TestRecipes(t *testing.T) {
	text, err := os.ReadFile("../docs/recipes.md")
	require.NoError(t, err)
	recipes, err := parseRecipes(string(text))
	require.NoError(t, err)
	require.Equal(t, "The base", recipes[0].name)
	base := recipes[0].parts[0]
	for _, r := range recipes {
		t.Run(r.name, func(t *testing.T) {
			parts := r.parts
			if r.name == recipes[0].name {
				parts = nil
			}
			lab := r.start(t, base, parts)
			for _, row := range r.rows {
				row.ask(t, lab.Options.Listen)
			}
		})
	}
}

// TestRecipesThatAreWrong: a document that says something else than what Envoy and the service do fails.
func TestRecipesThatAreWrong(t *testing.T) {
	for name, text := range map[string]string{
		"a key nobody knows":       "## R\n\n```yaml\nhttp_filter: []\n```\n\n```yaml\npolicies: []\n```\n\n| request | answer |\n|---|---|\n| `GET /` | 200 |\n",
		"no policies":              "## R\n\n```yaml\nroutes: []\n```\n\n| request | answer |\n|---|---|\n| `GET /` | 200 |\n",
		"no requests":              "## R\n\n```yaml\npolicies: []\n```\n",
		"a request without a path": "## R\n\n```yaml\npolicies: []\n```\n\n| request | answer |\n|---|---|\n| `GET` | 200 |\n",
		"an answer without status": "## R\n\n```yaml\npolicies: []\n```\n\n| request | answer |\n|---|---|\n| `GET /` | denied |\n",
		"a word nobody knows":      "## R\n\n```yaml\npolicies: []\n```\n\n| request | answer |\n|---|---|\n| `GET /` thrice | 200 |\n",
	} {
		_, err := parseRecipes(text)
		require.Error(t, err, name)
	}
	row := recipeRow{request: harness.Request{Method: "GET", Target: "/"}, times: 1, status: 200, with: []string{"retry-after: 1"}, without: []string{"ratelimit"}}
	fields := &harness.Response{Status: 200, Fields: []string{"retry-after: 1"}}
	require.NoError(t, row.compare(fields))
	require.ErrorContains(t, row.compare(&harness.Response{Status: 429, Fields: fields.Fields}), "status")
	require.ErrorContains(t, row.compare(&harness.Response{Status: 200, Fields: []string{"retry-after: 2"}}), "retry-after: 1")
	require.ErrorContains(t, row.compare(&harness.Response{Status: 200, Fields: []string{"retry-after: 1", "RateLimit: x"}}), "ratelimit")
}

func (r *recipe) start(t *testing.T, base map[string]any, parts []map[string]any) *harness.Lab {
	t.Helper()
	o := setup{policies: writePolicies(t, r.policies)}.options(t.TempDir())
	o.Configure = func(s harness.EnvoySettings) (string, error) { return r.configure(base, parts, s) }
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	lab, err := harness.StartAnywhere(ctx, o)
	require.NoError(t, err)
	t.Cleanup(lab.Stop)
	return lab
}

// configure puts the parts into a copy of the base, and the addresses of the lab in the place of those that the document names.
func (r *recipe) configure(base map[string]any, parts []map[string]any, s harness.EnvoySettings) (string, error) {
	var whole map[string]any
	text, err := yaml.Marshal(base)
	if err == nil {
		err = yaml.Unmarshal(text, &whole)
	}
	if err != nil {
		return "", err
	}
	for _, part := range parts {
		putPart(whole, part)
	}
	ports := map[uint64]string{9901: s.Admin, 10000: s.Listen, 9000: s.Upstream, 8081: s.Services[0]}
	readdress(whole, ports, s.Timeout)
	text, err = yaml.Marshal(whole)
	return string(text), err
}

// putPart puts a part of a configuration where it belongs.
func putPart(whole, part map[string]any) {
	resources := whole["static_resources"].(map[string]any)
	filter := at(resources, "listeners", 0, "filter_chains", 0, "filters", 0)
	manager := filter.(map[string]any)["typed_config"].(map[string]any)
	host := at(manager, "route_config", "virtual_hosts", 0).(map[string]any)
	for key, value := range part {
		switch key {
		case "http_filters":
			manager[key] = putBefore(manager[key].([]any), value.([]any), "envoy.filters.http.ratelimit")
		case "routes":
			host[key] = append(value.([]any), host[key].([]any)...)
		case "rate_limits":
			host[key] = value
		case "clusters":
			resources[key] = append(resources[key].([]any), value.([]any)...)
		default:
			manager[key] = value
		}
	}
}

// at walks down maps and lists.
func at(value any, path ...any) any {
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

// putBefore puts filters before the one of a name, or in the place of those that have their names.
func putBefore(filters, added []any, before string) []any {
	name := func(filter any) any { return at(filter, "name") }
	for _, filter := range added {
		same := slices.IndexFunc(filters, func(f any) bool { return name(f) == name(filter) })
		if same >= 0 {
			filters[same] = filter
			continue
		}
		place := slices.IndexFunc(filters, func(f any) bool { return name(f) == before })
		filters = slices.Insert(filters, place, filter)
	}
	return filters
}

// readdress exchanges addresses by their ports, and how long Envoy waits for the service.
func readdress(value any, ports map[uint64]string, timeout time.Duration) {
	switch value := value.(type) {
	case []any:
		for _, v := range value {
			readdress(v, ports, timeout)
		}
	case map[string]any:
		if port, ok := value["port_value"].(uint64); ok && ports[port] != "" {
			host, port, _ := net.SplitHostPort(ports[port])
			value["address"] = host
			value["port_value"], _ = strconv.ParseUint(port, 10, 16)
		}
		if value["timeout"] == "0.020s" {
			value["timeout"] = fmt.Sprintf("%.3fs", timeout.Seconds())
		}
		for _, v := range value {
			readdress(v, ports, timeout)
		}
	}
}

// ask makes the requests of a row and compares the answers.
func (row *recipeRow) ask(t *testing.T, edge string) {
	t.Helper()
	client := &harness.Client{Addr: edge, From: row.from}
	defer client.Close()
	for range row.times {
		once := func() error {
			answer, err := client.Do(t.Context(), row.request)
			if err != nil {
				return err
			}
			return row.compare(answer)
		}
		if row.soon {
			require.Eventually(t, func() bool { return once() == nil }, patience, 10*time.Millisecond, row.text)
			continue
		}
		require.NoError(t, once(), row.text)
	}
}

// compare says in what an answer differs from what the document says.
func (row *recipeRow) compare(answer *harness.Response) error {
	var faults []error
	if answer.Status != row.status {
		faults = append(faults, fmt.Errorf("status %d, want %d", answer.Status, row.status))
	}
	for _, field := range row.with {
		name, value, valued := strings.Cut(field, ": ")
		got := answer.Field(name)
		if len(got) == 0 || valued && !slices.ContainsFunc(got, func(line string) bool { return strings.HasSuffix(line, ": "+value) }) {
			faults = append(faults, fmt.Errorf("no %s", field))
		}
	}
	for _, name := range row.without {
		if len(answer.Field(name)) > 0 {
			faults = append(faults, fmt.Errorf("there is %s", name))
		}
	}
	if len(faults) > 0 {
		faults = append(faults, fmt.Errorf("the answer: %s", answer))
	}
	return errors.Join(faults...)
}

// token is a JWT signed with the key of the document.
func token() string {
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"tenant":"acme","plan":"free"}`))
	mac := hmac.New(sha256.New, []byte("secret"))
	mac.Write([]byte(signed))
	return signed + "." + encode(mac.Sum(nil))
}
