package deploy_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// flags are those of envoy-rls serve: the variable of each, and its default if that is told.
func flags() (map[string]string, error) {
	out, err := exec.Command(programs.service, "serve", "--help").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("serve --help: %w", err)
	}
	known := map[string]string{}
	line := regexp.MustCompile(`(?m)^ +--([a-z][a-z-]+)\b.*?(?:\(default "?([^" )]*)|$)`)
	for _, found := range line.FindAllStringSubmatch(string(out), -1) {
		known["ENVOY_RLS_"+strings.ToUpper(strings.ReplaceAll(found[1], "-", "_"))] = found[2]
	}
	if known["ENVOY_RLS_GRPC_ADDR"] == "" || known["ENVOY_RLS_DRAIN_DELAY"] == "" {
		return nil, fmt.Errorf("serve --help is not understood:\n%s", out)
	}
	return known, nil
}

// environment is what the container's process gets, in the order of the manifest. Which of it are flags is up to known.
func (m *manifests) environment(known map[string]string) (map[string]string, []string) {
	c, set, faults := m.container(), map[string]string{}, []string(nil)
	for _, v := range c.Env {
		value, err := v.value(c)
		if err != nil {
			faults = append(faults, err.Error())
		}
		if _, flag := known[v.Name]; !flag && strings.HasPrefix(v.Name, "ENVOY_RLS_") {
			faults = append(faults, v.Name+" sets no flag of the binary")
		}
		set[v.Name] = value
	}
	return set, faults
}

// setting is a flag's value in the container: from the environment, or the binary's default.
func (m *manifests) setting(known map[string]string, name string) string {
	set, _ := m.environment(known)
	if value, given := set[name]; given {
		return value
	}
	return known[name]
}

// start starts the binary as the container would, on free ports and with its volumes in dir.
func (m *manifests) start(ctx context.Context, known map[string]string, dir string) (*harness.Instance, error) {
	mounted, err := m.mount(dir)
	if err != nil {
		return nil, err
	}
	set, _ := m.environment(known)
	set["ENVOY_RLS_DRAIN_DELAY"] = "0s" // which nobody is to wait for
	env := make([]string, 0, len(set))
	for name, value := range set {
		for at, here := range mounted {
			if value == at || strings.HasPrefix(value, at+"/") {
				value = here + strings.TrimPrefix(value, at)
			}
		}
		env = append(env, name+"="+value)
	}
	return harness.StartInstance(ctx, programs.service, m.container().Args, env)
}

// mount makes the volumes and gives where each is, by the path that it has in the container.
func (m *manifests) mount(dir string) (map[string]string, error) {
	mounted := map[string]string{}
	for _, at := range m.container().VolumeMounts {
		here := filepath.Join(dir, at.Name)
		if err := os.MkdirAll(here, 0o700); err != nil {
			return nil, err
		}
		mounted[at.MountPath] = here
		for name, text := range m.files(at.Name) {
			if err := os.WriteFile(filepath.Join(here, name), []byte(text), 0o600); err != nil {
				return nil, err
			}
		}
	}
	return mounted, nil
}

// files are what a volume holds. Of secrets only those names are known that the comments of the manifests ask for.
func (m *manifests) files(name string) map[string]string {
	for _, v := range m.Deployment.Spec.Template.Spec.Volumes {
		switch {
		case v.Name != name:
		case v.ConfigMap != nil:
			return m.ConfigMaps[v.ConfigMap.Name]
		case v.Secret != nil:
			return maps.Clone(map[string]map[string]string{
				"envoy-rls-redis":      {"password": "not-a-secret"},
				"envoy-rls-policy-dsn": {"dsn": noDatabase},
			}[v.Secret.SecretName])
		}
	}
	return nil
}

// noDatabase is where nothing answers.
const noDatabase = "postgres://nobody@127.0.0.1:1/nothing"

// port is that of an address such as :8081.
func port(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	return port
}
