package deploy_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// runningFaults starts the binary as the manifests say and asks it what the cluster will ask it.
func (m *manifests) runningFaults(ctx context.Context, known map[string]string, adapter, dir string) []string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := m.start(ctx, known, dir)
	if m.setting(known, "ENVOY_RLS_POLICY_SOURCE") == "postgres" && err != nil {
		return m.databaseFaults(err, dir)
	}
	if err != nil {
		return []string{"does not start: " + err.Error()}
	}
	defer r.stop()
	var f faults
	for what, probe := range m.container().probes() {
		if probe != nil {
			_, err := harness.Get(ctx, "http://"+r.admin+probe.HTTPGet.Path)
			f.unless(err == nil, "the %s probe: %v", what, err)
		}
	}
	f.unless(!strings.Contains(r.log.String(), "set no flag"), "the log says that variables set no flag")
	f = append(f, m.policyFaults(ctx, r)...)
	if m.Monitor == nil {
		return f
	}
	metrics, err := harness.Get(ctx, "http://"+r.admin+m.Monitor.Spec.Endpoints[0].Path)
	f.unless(err == nil, "the ServiceMonitor: %v", err)
	var rules adapterRules
	_ = yaml.Unmarshal([]byte(adapter), &rules) // scalerFaults tells
	for _, r := range rules.Rules.Custom {
		f.unless(strings.Contains(metrics, "\n# TYPE "+rules.series(r.Name.As)+" counter\n"), "no counter %s", rules.series(r.Name.As))
	}
	return f
}

// databaseFaults tells whether the service ended because it has no database, having looked where the manifests say. That it follows a database is
// tested elsewhere.
func (m *manifests) databaseFaults(err error, dir string) []string {
	var f faults
	f.unless(strings.Contains(err.Error(), "127.0.0.1:1 "), "does not start: %v", err)
	f.unless(strings.Contains(err.Error(), "no policies have been kept in "+filepath.Join(dir, "kept/policies.kept")), "does not look where policies are kept: %v", err)
	return f
}

// policyFaults are policies of the ConfigMap that are not in force, and what validate says of them.
func (m *manifests) policyFaults(ctx context.Context, r *running) []string {
	var f faults
	page, err := harness.Get(ctx, "http://"+r.admin+"/api/v1/policies")
	f.unless(err == nil && json.Valid([]byte(page)), "policies: %v", err)
	for _, file := range m.ConfigMaps["envoy-rls-policies"] {
		var content struct {
			Policies []struct{ ID string }
		}
		f.unless(yaml.Unmarshal([]byte(file), &content) == nil, "a policy file is no YAML")
		for _, p := range content.Policies {
			f.unless(strings.Contains(page, `"id": "`+p.ID+`"`), "policy %s is not in force", p.ID)
		}
	}
	return f
}

// validateFaults is what envoy-rls validate --strict says of the policies.
func (m *manifests) validateFaults(dir string) []string {
	args := []string{"validate", "--strict"}
	for name, text := range m.ConfigMaps["envoy-rls-policies"] {
		path := filepath.Join(dir, m.name+"-"+name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return []string{err.Error()}
		}
		args = append(args, path)
	}
	if out, err := exec.Command(programs.service, args...).CombinedOutput(); err != nil {
		return []string{"validate: " + string(out)}
	}
	return nil
}
