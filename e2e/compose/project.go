//go:build linux

package compose

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// Load reads a Compose file and refuses what the runner does not understand, all of it at once. dir is what relative paths are relative to, env
// are the variables (NAME=VALUE) that the file may use.
func Load(ctx context.Context, file, dir string, env []string) (*types.Project, error) {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithWorkingDirectory(dir), cli.WithEnv(env))
	if err != nil {
		return nil, err
	}
	p, err := options.LoadProject(ctx)
	if err != nil {
		return nil, err
	}
	return p, understood(p)
}

// understood returns an error for all in the file that the runner would not carry out.
func understood(p *types.Project) error {
	var errs []error
	for _, name := range sorted(p.Services) {
		for _, fault := range serviceFaults(p.Services[name]) {
			errs = append(errs, fmt.Errorf("service %s: %s", name, fault))
		}
	}
	for _, name := range sorted(p.Networks) {
		n := p.Networks[name]
		for _, pool := range n.Ipam.Config {
			rest := *pool
			rest.Subnet, rest.Gateway, rest.IPRange = "", "", ""
			errs = append(errs, unknown("network "+name, rest))
		}
		n.Name, n.Internal, n.Ipam.Config = "", false, nil // see newBridge
		n.DriverOpts = maps.Clone(n.DriverOpts)
		delete(n.DriverOpts, "com.docker.network.bridge.enable_ip_masquerade") // no way leads out of here, and addresses stay as they are
		errs = append(errs, unknown("network "+name, n))
	}
	for _, name := range sorted(p.Volumes) {
		v := p.Volumes[name]
		v.Name = ""
		errs = append(errs, unknown("volume "+name, v))
	}
	for _, name := range sorted(p.Secrets) {
		s := p.Secrets[name]
		if _, err := os.Stat(s.File); err != nil {
			errs = append(errs, fmt.Errorf("secret %s: %w", name, err))
		}
		s.Name, s.File = "", ""
		errs = append(errs, unknown("secret "+name, s))
	}
	rest := *p
	rest.Name, rest.WorkingDir, rest.ComposeFiles, rest.Environment, rest.Extensions = "", "", nil, nil, nil
	rest.Services, rest.Networks, rest.Volumes, rest.Secrets = nil, nil, nil, nil
	return errors.Join(append(errs, unknown("the file", rest))...)
}

func serviceFaults(s types.ServiceConfig) (faults []string) {
	if s.Build == nil && s.Image == "" {
		faults = append(faults, "has neither build nor image")
	}
	if s.Build == nil && !slices.Contains([]string{"", "missing"}, s.PullPolicy) {
		faults = append(faults, "pull_policy is not understood here")
	}
	if s.NetworkMode != "" {
		faults = append(faults, "network_mode is not understood here")
	}
	if h := s.HealthCheck; h != nil {
		if h.Disable || len(h.Test) < 2 || h.Test[0] != "CMD" && h.Test[0] != "CMD-SHELL" {
			faults = append(faults, "healthcheck: test has to begin with CMD or CMD-SHELL")
		}
	}
	for _, m := range s.Volumes {
		if _, err := os.Stat(m.Source); m.Type == types.VolumeTypeBind && err != nil {
			faults = append(faults, "volume: "+err.Error())
		}
	}
	faults = append(faults, limitFaults(s)...)
	for _, part := range serviceRest(s) {
		if err := unknown("", part); err != nil {
			faults = append(faults, err.Error())
		}
	}
	return faults
}

// limitFaults is what is wrong with how a service is locked down, and opened.
func limitFaults(s types.ServiceConfig) (faults []string) {
	for _, option := range s.SecurityOpt {
		if option != "no-new-privileges:true" {
			faults = append(faults, "security_opt "+option+" is not understood here")
		}
	}
	for name := range s.Sysctls {
		if !strings.HasPrefix(name, "net.") {
			faults = append(faults, "sysctl "+name+" is not understood here")
		}
	}
	for _, p := range s.Ports {
		if p.Protocol != "tcp" || p.Mode != "ingress" || strings.Contains(p.Published, "-") || p.Published == "" {
			faults = append(faults, fmt.Sprintf("port %s:%d: only single published TCP ports are understood here", p.Published, p.Target))
		}
	}
	return faults
}

// serviceRest are the parts of a service without the fields that the runner carries out, or that change nothing here.
func serviceRest(s types.ServiceConfig) []any {
	s.Name, s.Image, s.Hostname, s.User, s.ReadOnly, s.PullPolicy, s.WorkingDir = "", "", "", "", false, "", ""
	s.Command, s.Entrypoint, s.Environment = nil, nil, nil
	s.CapDrop, s.SecurityOpt, s.Sysctls, s.Tmpfs, s.StopGracePeriod = nil, nil, nil, nil, nil
	s.Expose = nil // says something to people only

	var parts []any
	if s.Build != nil {
		b := *s.Build
		b.Context, b.Dockerfile, b.Target = "", "", ""
		parts = append(parts, b)
	}
	if s.HealthCheck != nil {
		parts = append(parts, healthRest(*s.HealthCheck))
	}
	parts = append(parts, listRest(s)...)
	s.Build, s.HealthCheck, s.DependsOn, s.Networks, s.Ports, s.Secrets, s.Volumes = nil, nil, nil, nil, nil, nil, nil
	return append(parts, s)
}

// listRest is the same for what a service has several of.
func listRest(s types.ServiceConfig) (parts []any) {
	for _, d := range s.DependsOn {
		d.Condition, d.Required = "", !d.Required
		parts = append(parts, d)
	}
	for _, n := range s.Networks {
		if n != nil {
			address := *n
			address.Ipv4Address = ""
			parts = append(parts, address)
		}
	}
	for _, p := range s.Ports {
		p.Mode, p.HostIP, p.Target, p.Published, p.Protocol = "", "", 0, "", ""
		parts = append(parts, p)
	}
	for _, secret := range s.Secrets {
		f := types.FileReferenceConfig(secret)
		f.Source, f.Target = "", ""
		parts = append(parts, f)
	}
	for _, m := range s.Volumes {
		m.Type, m.Source, m.Target, m.ReadOnly = "", "", "", false
		if m.Bind != nil {
			bind := *m.Bind
			bind.CreateHostPath = false // the short form has it, and what is not there is a fault here
			parts = append(parts, bind)
		}
		if m.Volume != nil {
			parts = append(parts, *m.Volume)
		}
		m.Bind, m.Volume = nil, nil
		parts = append(parts, m)
	}
	return parts
}

func healthRest(h types.HealthCheckConfig) types.HealthCheckConfig {
	h.Test, h.Timeout, h.Interval, h.Retries, h.StartPeriod, h.StartInterval = nil, nil, nil, nil, nil, nil
	return h
}

// unknown returns an error that names the fields of a struct that are set.
func unknown(what string, rest any) error {
	if fields := set(reflect.ValueOf(rest)); len(fields) > 0 {
		return errors.New(strings.TrimPrefix(what+": not understood here: "+strings.Join(fields, ", "), ": "))
	}
	return nil
}

// set names the fields of a struct that are not empty, as the file does.
func set(v reflect.Value) (names []string) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		value := v.Field(i)
		if !field.IsExported() || value.IsZero() || (value.Kind() == reflect.Slice || value.Kind() == reflect.Map) && value.Len() == 0 {
			continue
		}
		if value.Kind() == reflect.Struct {
			names = append(names, set(value)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			name = field.Name
		}
		names = append(names, name)
	}
	return names
}
