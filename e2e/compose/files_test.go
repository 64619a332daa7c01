//go:build linux

package compose_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/types"
	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

// rulesShipped is how many groups of rules Prometheus should have.
func rulesShipped(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("../../deploy/prometheus/rules.yaml")
	if os.IsNotExist(err) {
		return 0
	}
	require.NoError(t, err)
	var file struct {
		Groups []any `yaml:"groups"`
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.NotEmpty(t, file.Groups)
	return len(file.Groups)
}

// TestGrafana checks what Grafana is given, since it cannot be started here: every file that it reads is where it looks for it, and where it asks
// for metrics somebody answers.
func TestGrafana(t *testing.T) {
	p := shipped(t)
	grafana := p.Services["grafana"]

	var sources struct {
		Datasources []struct{ Type, UID, URL string }
	}
	readYAML(t, filepath.Join(mounted(t, grafana, "/etc/grafana/provisioning/datasources"), "prometheus.yaml"), &sources)
	require.Len(t, sources.Datasources, 1)
	require.Equal(t, "prometheus", sources.Datasources[0].Type)
	require.Equal(t, "http://prometheus:9090", sources.Datasources[0].URL)
	require.Contains(t, p.Services["prometheus"].Networks, "edge")
	require.Contains(t, grafana.Networks, "edge")

	var dashboards struct {
		Providers []struct {
			Type    string
			Options struct{ Path string }
		}
	}
	readYAML(t, filepath.Join(mounted(t, grafana, "/etc/grafana/provisioning/dashboards"), "envoy-rls.yaml"), &dashboards)
	require.Len(t, dashboards.Providers, 1)
	require.Equal(t, "file", dashboards.Providers[0].Type)
	files, err := filepath.Glob(filepath.Join(mounted(t, grafana, dashboards.Providers[0].Options.Path), "*.json"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var dashboard struct {
			Title  string `json:"title"`
			Panels []any  `json:"panels"`
		}
		require.NoError(t, json.Unmarshal(text, &dashboard), file)
		require.NotEmpty(t, dashboard.Title, file)
		require.NotEmpty(t, dashboard.Panels, file)
	}
}

// TestPrometheusScrapesTheInstances: the targets are services of the file, on a network that Prometheus is on, at the port of the admin address.
func TestPrometheusScrapesTheInstances(t *testing.T) {
	p := shipped(t)
	var config struct {
		RuleFiles     []string `yaml:"rule_files"`
		ScrapeConfigs []struct {
			StaticConfigs []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	readYAML(t, filepath.Join(mounted(t, p.Services["prometheus"], "/etc/prometheus"), "prometheus.yml"), &config)
	require.Equal(t, []string{"rules.yaml"}, config.RuleFiles)
	require.Equal(t, []string{"envoy-rls-1:8080", "envoy-rls-2:8080"}, config.ScrapeConfigs[0].StaticConfigs[0].Targets)
}

// mounted is the path on this machine of a path in a service's container.
func mounted(t *testing.T, s types.ServiceConfig, path string) string {
	t.Helper()
	for _, v := range s.Volumes {
		if below, ok := strings.CutPrefix(path+"/", v.Target+"/"); ok && v.Type == types.VolumeTypeBind {
			return filepath.Join(v.Source, below)
		}
	}
	t.Fatalf("nothing is mounted at %s", path)
	return ""
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, yaml.Unmarshal(text, into))
}
