//go:build linux

package compose

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"

	"github.com/compose-spec/compose-go/v2/types"
)

// builder makes images of Dockerfiles. Each stage is made once.
type builder struct {
	dir  string // for the images
	made map[string]*image
}

// build makes the image that a service of the file is built as.
func (b *builder) build(ctx context.Context, c *types.BuildConfig) (*image, error) {
	stages, _, err := parseDockerfile(filepath.Join(c.Context, c.Dockerfile))
	if err != nil {
		return nil, err
	}
	target := c.Target
	if target == "" {
		target = fmt.Sprint(len(stages) - 1)
	}
	return b.stage(ctx, c.Context, stages, target)
}

// stage makes the stage with a name or number.
func (b *builder) stage(ctx context.Context, source string, stages []instructions.Stage, name string) (*image, error) {
	for n, s := range stages {
		if s.Name != name && fmt.Sprint(n) != name {
			continue
		}
		id := fmt.Sprintf("%s#%d", source, n)
		if made, ok := b.made[id]; ok {
			return made, nil
		}
		i, err := baseImage(s.BaseName)
		if err != nil {
			return nil, err
		}
		if i.files, err = os.MkdirTemp(b.dir, "stage"); err != nil {
			return nil, err
		}
		making := &stage{builder: b, source: source, earlier: stages[:n], image: i, args: map[string]string{}}
		for _, c := range s.Commands {
			if err := making.step(ctx, c); err != nil {
				return nil, fmt.Errorf("build %s: %v: %w", source, c, err)
			}
		}
		b.made[id] = i
		return i, nil
	}
	return nil, fmt.Errorf("build %s: there is no stage %s", source, name)
}

// stage is an image in the making.
type stage struct {
	*image
	builder *builder
	source  string // the build context
	earlier []instructions.Stage
	args    map[string]string
}

// step carries out one instruction.
func (s *stage) step(ctx context.Context, c instructions.Command) error {
	switch c := c.(type) {
	case *instructions.ArgCommand:
		for _, a := range c.Args {
			s.args[a.Key] = a.ValueString()
		}
	case *instructions.EnvCommand:
		if s.env == nil {
			s.env = map[string]string{}
		}
		for _, kv := range c.Env {
			s.env[kv.Key] = kv.Value
		}
	case *instructions.WorkdirCommand:
		s.dir = c.Path
		return os.MkdirAll(filepath.Join(s.files, c.Path), 0o755)
	case *instructions.UserCommand:
		s.user = c.User
	case *instructions.ExposeCommand: // says something to people only
	case *instructions.EntrypointCommand:
		s.entrypoint = shell(c.ShellDependantCmdLine)
	case *instructions.CmdCommand:
		s.command = shell(c.ShellDependantCmdLine)
	case *instructions.CopyCommand:
		return s.copy(ctx, c)
	case *instructions.RunCommand:
		return s.run(ctx, c)
	default:
		return errors.New("this instruction is not understood here")
	}
	return nil
}

func shell(line instructions.ShellDependantCmdLine) []string {
	if line.PrependShell {
		return append([]string{"/bin/sh", "-c"}, line.CmdLine...)
	}
	return line.CmdLine
}

// run carries out RUN, with the caches of this machine's Go where the file mounts caches.
func (s *stage) run(ctx context.Context, c *instructions.RunCommand) error {
	if !s.tools {
		return errors.New("the stage has no shell")
	}
	if err := c.Expand(func(word string) (string, error) { return word, nil }); err != nil {
		return err
	}
	goEnv, err := goSettings(ctx)
	if err != nil {
		return err
	}
	caches := map[string]string{"/go/pkg/mod": goEnv["GOMODCACHE"], "/root/.cache/go-build": goEnv["GOCACHE"]}
	r := root{dir: s.files, tools: true, mounts: []mount{{source: "/etc", target: "/etc", readOnly: true}}}
	if !strings.HasPrefix(goEnv["GOROOT"], "/usr/") {
		r.mounts = append(r.mounts, mount{source: goEnv["GOROOT"], target: goEnv["GOROOT"], readOnly: true})
	}
	for _, m := range instructions.GetMounts(c) {
		if m.Type != instructions.MountTypeCache || caches[m.Target] == "" {
			return fmt.Errorf("a mount of type %s at %s is not understood here", m.Type, m.Target)
		}
		r.mounts = append(r.mounts, mount{source: caches[m.Target], target: m.Target})
	}
	in, err := newSpace(r.enter)
	if err != nil {
		return err
	}
	defer in.close()
	line := shell(c.ShellDependantCmdLine)
	cmd := exec.CommandContext(ctx, line[0], line[1:]...)
	cmd.Env = append(s.environment(), "HOME=/root", "PATH="+goEnv["GOROOT"]+"/bin:"+toolPath)
	cmd.Env = append(cmd.Env, passedOn()...)
	return in.do(func() error {
		r.confine(cmd, s.dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// environment is what ENV and ARG have set.
func (s *stage) environment() []string {
	var env []string
	for _, values := range []map[string]string{s.args, s.env} {
		for _, name := range sorted(values) {
			env = append(env, name+"="+values[name])
		}
	}
	return env
}

// passedOn are the variables of this process that say how the Go modules are to be had.
func passedOn() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch strings.ToUpper(name) {
		case "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GONOPROXY", "GOINSECURE", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "SSL_CERT_FILE":
			env = append(env, kv)
		}
	}
	return env
}

// goSettings are where this machine's Go has its things.
func goSettings(ctx context.Context) (map[string]string, error) {
	names := []string{"GOROOT", "GOMODCACHE", "GOCACHE"}
	out, err := exec.CommandContext(ctx, "go", append([]string{"env"}, names...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	settings := map[string]string{}
	for i, value := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		settings[names[i]] = value
	}
	return settings, nil
}
