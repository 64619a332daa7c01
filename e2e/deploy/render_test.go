package deploy_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
)

// kustomize renders a directory.
func kustomize(dir string) (string, error) {
	out, err := exec.Command(programs.kustomize, "build", dir).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = errors.New(string(exit.Stderr))
	}
	if err != nil {
		return "", fmt.Errorf("kustomize %s: %w", dir, err)
	}
	return string(out), nil
}

// render has kustomize make the manifests of an overlay of a tree.
func render(tree, overlay string) (*manifests, error) {
	text, err := kustomize(filepath.Join(tree, "kustomize/overlays", overlay))
	if err != nil {
		return nil, err
	}
	m := &manifests{name: overlay, text: text, ConfigMaps: map[string]map[string]string{}}
	for i, text := range strings.Split(m.text, "\n---\n") {
		if err := m.add(text); err != nil {
			return nil, fmt.Errorf("%s: object %d: %w", overlay, i+1, err)
		}
	}
	return m, nil
}

// add reads one object.
func (m *manifests) add(text string) error {
	var o object
	if err := yaml.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	var into any
	switch o.Kind {
	case "Namespace":
		into = &m.Namespace
	case "ServiceAccount":
		into = &m.Account
	case "Deployment":
		into = &m.Deployment
	case "Service":
		into = &m.Service
	case "PodDisruptionBudget":
		into = &m.Budget
	case "HorizontalPodAutoscaler":
		m.Scaler = new(scaler)
		into = m.Scaler
	case "NetworkPolicy":
		into = &m.Network
	case "PriorityClass":
		m.Priority = new(object)
		into = m.Priority
	case "ServiceMonitor":
		m.Monitor = new(serviceMonitor)
		return yaml.UnmarshalWithOptions([]byte(text), m.Monitor, yaml.Strict())
	case "ConfigMap":
		var c struct{ Data map[string]string }
		err := yaml.Unmarshal([]byte(text), &c)
		m.ConfigMaps[o.Metadata.Name] = c.Data
		return err
	default:
		return fmt.Errorf("a %s: these tests do not know it yet", o.Kind)
	}
	return yaml.Unmarshal([]byte(text), into)
}

// container is the only one that there is.
func (m *manifests) container() container {
	if len(m.Deployment.Spec.Template.Spec.Containers) != 1 {
		return container{}
	}
	return m.Deployment.Spec.Template.Spec.Containers[0]
}

// schemaFaults are those that kubernetes-validate finds: fields that there are not, values that they cannot have.
func (m *manifests) schemaFaults(dir string) []string {
	path := filepath.Join(dir, m.name+".yaml")
	if err := os.WriteFile(path, []byte(m.text), 0o600); err != nil {
		return []string{err.Error()}
	}
	cmd := exec.Command("python3", filepath.Join(programs.validator, "bin/kubernetes-validate"), "--strict", "--quiet", path)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+programs.validator)
	out, err := cmd.CombinedOutput()
	var faults []string
	for line := range strings.Lines(string(out)) {
		if !strings.Contains(line, "schema for kind ServiceMonitor") { // not Kubernetes' own: add looks at it
			faults = append(faults, strings.TrimSpace(line))
		}
	}
	if err != nil && len(faults) == 0 {
		faults = append(faults, err.Error())
	}
	return faults
}
