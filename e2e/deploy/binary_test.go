package deploy_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
	"github.com/envoy-rls/envoy-rls/internal/testcerts"
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

// running is the binary as a container would run it.
type running struct {
	process *harness.Process
	admin   string // host:port
	log     *harness.Journal
}

func (r *running) stop() { r.process.Stop(patience) }

// start starts the binary as the container would, with its environment and nothing else, on free ports and with its volumes in dir.
func (m *manifests) start(ctx context.Context, known map[string]string, dir string) (*running, error) {
	mounted, err := m.mount(dir)
	if err != nil {
		return nil, err
	}
	set, _ := m.environment(known)
	for name, value := range set {
		for at, here := range mounted {
			if value == at || strings.HasPrefix(value, at+"/") {
				set[name] = here + strings.TrimPrefix(value, at)
			}
		}
	}
	set["ENVOY_RLS_DRAIN_DELAY"] = "0s" // which nobody is to wait for
	set["ENVOY_RLS_DEBUG_ADDR"] = ""
	// Another program may take a port before the service does.
	for try := 1; ; try++ {
		r, err := m.startOnce(ctx, set)
		if err == nil || try == 3 || !strings.Contains(err.Error(), "address already in use") {
			return r, err
		}
	}
}

func (m *manifests) startOnce(ctx context.Context, set map[string]string) (*running, error) {
	for _, name := range []string{"ENVOY_RLS_GRPC_ADDR", "ENVOY_RLS_ADMIN_ADDR"} {
		free, err := harness.FreePort()
		if err != nil {
			return nil, err
		}
		set[name] = fmt.Sprintf("127.0.0.1:%d", free)
	}
	r := &running{admin: set["ENVOY_RLS_ADMIN_ADDR"], log: &harness.Journal{}}
	cmd := exec.Command(programs.service, m.container().Args...)
	for name, value := range set {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var err error
	if r.process, err = harness.StartProcess("envoy-rls", cmd, r.log); err != nil {
		return nil, err
	}
	err = harness.Until(ctx, "envoy-rls to be ready", func() error {
		_, err := harness.Get(ctx, "http://"+r.admin+"/readyz")
		return err
	}, r.process)
	if err != nil {
		r.stop()
		return nil, err
	}
	return r, nil
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
			return secretFiles(v.Secret.SecretName)
		}
	}
	return nil
}

func secretFiles(name string) map[string]string {
	switch name {
	case "envoy-rls-redis":
		return map[string]string{"password": "not-a-secret"}
	case "envoy-rls-policy-dsn":
		return map[string]string{"dsn": noDatabase}
	case "envoy-rls-admin-token":
		return map[string]string{"tokens": "somebody " + strings.Repeat("0123456789abcdef", 4) + "\n"}
	case "envoy-rls-grpc-tls":
		authority, err := testcerts.New("envoys")
		if err != nil {
			return nil
		}
		pair, err := authority.Issue(testcerts.Leaf{Name: "envoy-rls"})
		if err != nil {
			return nil
		}
		return map[string]string{"tls.crt": string(pair.Cert), "tls.key": string(pair.Key), "ca.crt": string(authority.PEM)}
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
