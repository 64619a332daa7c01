package harness

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/e2e/upstream"
)

// Options say what a Lab runs, and where. Every field without a comment about a default is needed.
type Options struct {
	EnvoyBinary string
	EnvoyConfig string // the project's envoy.yaml
	// Configure, if set, makes the configuration of Envoy in place of EnvoyConfig.
	Configure     func(EnvoySettings) (string, error)
	ServiceBinary string
	ServiceArgs   []string // further flags of envoy-rls serve; may be empty
	Policies      string   // policy file or directory
	Dir           string   // an existing directory for the configuration that Envoy gets

	Listen     string           // host:port of the edge
	EnvoyAdmin string           // host:port
	Upstream   string           // host:port
	Services   []ServiceAddress // one instance of envoy-rls for each

	// AdminTLS is by what the admin addresses are asked, if they have TLS. Nil: they have none.
	AdminTLS func() *tls.Config

	EnvoyTimeout time.Duration // how long Envoy waits for the service; 0: as configured
	Denials      io.Writer     // gets a line for each denial; may be nil
	Logs         io.Writer     // gets what the processes log; may be nil
}

// ServiceAddress is where an instance of the service listens.
type ServiceAddress struct {
	GRPC, Admin string // host:port
}

// Lab is an upstream, the service and an Envoy, all running.
type Lab struct {
	Options  Options
	Upstream *upstream.Server
	Services []*Process // in the order of Options.Services
	Envoy    *Process

	server *http.Server
	served chan error
}

// stopGrace is how long a process may take to stop before it is killed. The service drains for 2 s by default.
const stopGrace = 10 * time.Second

// Start starts everything and returns when it is ready to serve. On an error nothing is left running.
func Start(ctx context.Context, o Options) (*Lab, error) {
	l := &Lab{Options: o, Upstream: &upstream.Server{}, Services: make([]*Process, len(o.Services)), served: make(chan error, 1)}
	if err := l.start(ctx); err != nil {
		l.Stop()
		return nil, err
	}
	return l, nil
}

// StartAnywhere is Start on free ports: the addresses of o are not looked at, only how many services there are. Another program may take a port
// before its server does: then others are tried.
func StartAnywhere(ctx context.Context, o Options) (*Lab, error) {
	for try := 1; ; try++ {
		if err := o.choosePorts(); err != nil {
			return nil, err
		}
		l, err := Start(ctx, o)
		if err == nil || try == 3 || !strings.Contains(strings.ToLower(err.Error()), "address already in use") {
			return l, err
		}
	}
}

func (o *Options) choosePorts() error {
	o.Services = make([]ServiceAddress, len(o.Services))
	addresses := []*string{&o.Listen, &o.EnvoyAdmin, &o.Upstream}
	for i := range o.Services {
		addresses = append(addresses, &o.Services[i].GRPC, &o.Services[i].Admin)
	}
	for _, address := range addresses {
		port, err := FreePort()
		if err != nil {
			return err
		}
		*address = "127.0.0.1:" + strconv.Itoa(port)
	}
	return nil
}

func (l *Lab) start(ctx context.Context) error {
	if err := l.startUpstream(ctx); err != nil {
		return err
	}
	for i := range l.Services {
		if err := l.StartService(ctx, i); err != nil {
			return err
		}
	}
	return l.startEnvoy(ctx)
}

// Stop stops everything, Envoy first. It returns when all of it is gone.
func (l *Lab) Stop() {
	if l.Envoy != nil {
		l.Envoy.Stop(stopGrace)
	}
	for _, p := range l.Services {
		if p != nil {
			p.Stop(stopGrace)
		}
	}
	if l.server != nil {
		_ = l.server.Close()
		<-l.served
	}
}

// Processes returns every child process that was started.
func (l *Lab) Processes() []*Process {
	var all []*Process
	for _, p := range append([]*Process{l.Envoy}, l.Services...) {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

func (l *Lab) startUpstream(ctx context.Context) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", l.Options.Upstream)
	if err != nil {
		return fmt.Errorf("start upstream: %w", err)
	}
	l.server = &http.Server{Handler: l.Upstream, ReadHeaderTimeout: 30 * time.Second}
	go func() { l.served <- l.server.Serve(listener) }()
	return nil
}

// StartService starts instance i of the service, which must not be running, and returns when it is ready.
func (l *Lab) StartService(ctx context.Context, i int) error {
	at := l.Options.Services[i]
	args := []string{"serve", "--policies", l.Options.Policies, "--grpc-addr", at.GRPC, "--admin-addr", at.Admin, "--debug-addr", ""}
	cmd := exec.Command(l.Options.ServiceBinary, append(args, l.Options.ServiceArgs...)...)
	p, err := StartProcess("envoy-rls", cmd, l.Options.Logs)
	if err != nil {
		return err
	}
	l.Services[i] = p
	return Until(ctx, "envoy-rls to be ready", func() error {
		_, err := l.AdminPage(ctx, i, "/readyz")
		return err
	}, p)
}

// AdminPage is a page of the admin address of instance i.
func (l *Lab) AdminPage(ctx context.Context, i int, path string) (string, error) {
	if l.Options.AdminTLS != nil {
		return GetTLS(ctx, "https://"+l.Options.Services[i].Admin+path, l.Options.AdminTLS())
	}
	return Get(ctx, "http://"+l.Options.Services[i].Admin+path)
}

func (l *Lab) startEnvoy(ctx context.Context) error {
	settings := EnvoySettings{Listen: l.Options.Listen, Admin: l.Options.EnvoyAdmin, Upstream: l.Options.Upstream, Timeout: l.Options.EnvoyTimeout}
	for _, at := range l.Options.Services {
		settings.Services = append(settings.Services, at.GRPC)
	}
	config, err := l.Options.configure(settings)
	if err != nil {
		return err
	}
	path := filepath.Join(l.Options.Dir, "envoy.yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	cmd := exec.Command(l.Options.EnvoyBinary, "--config-path", path, "--disable-hot-restart", "--concurrency", "2",
		"--log-level", "warning", "--file-flush-interval-msec", "50", "--drain-time-s", "1", "--service-node", "e2e", "--service-cluster", "e2e")
	cmd.Stdout = l.Options.Denials
	if l.Envoy, err = StartProcess("envoy", cmd, l.Options.Logs); err != nil {
		return err
	}
	return Until(ctx, "Envoy to be ready", func() error {
		if _, err := Get(ctx, "http://"+l.Options.EnvoyAdmin+"/ready"); err != nil {
			return err
		}
		return l.healthy(ctx)
	}, l.Envoy)
}

func (o *Options) configure(s EnvoySettings) (string, error) {
	if o.Configure != nil {
		return o.Configure(s)
	}
	shipped, err := os.ReadFile(o.EnvoyConfig)
	if err != nil {
		return "", err
	}
	return s.Render(string(shipped))
}

// healthy tells whether Envoy has found every instance of the service healthy.
func (l *Lab) healthy(ctx context.Context) error {
	got, err := l.EnvoyStat(ctx, "cluster.envoy_rls.membership_healthy")
	if err == nil && got != len(l.Services) {
		return fmt.Errorf("%d of %d instances are healthy", got, len(l.Services))
	}
	return err
}

// EnvoyStat returns the value of one of Envoy's counters or gauges. Envoy makes many of them only when there is something to count.
func (l *Lab) EnvoyStat(ctx context.Context, name string) (int, error) {
	stats, err := l.envoyStats(ctx, "^"+name+"$")
	if err != nil {
		return 0, err
	}
	value, ok := stats[name]
	if !ok {
		return 0, errors.New("envoy has no stat " + name)
	}
	return value, nil
}

// Unasked returns for how many requests Envoy got no answer from the service, whatever became of them.
func (l *Lab) Unasked(ctx context.Context) (int, error) {
	stats, err := l.envoyStats(ctx, `^cluster\.upstream\.ratelimit\.`)
	if err != nil {
		return 0, err
	}
	if len(stats) == 0 {
		return 0, errors.New("envoy has asked nothing yet")
	}
	unasked := 0
	for name, value := range stats {
		if strings.HasSuffix(name, ".error") || strings.HasSuffix(name, ".failure_mode_allowed") {
			unasked += value
		}
	}
	return unasked, nil
}

// envoyStats returns the counters and gauges whose names match the regular expression.
func (l *Lab) envoyStats(ctx context.Context, filter string) (map[string]int, error) {
	page, err := Get(ctx, "http://"+l.Options.EnvoyAdmin+"/stats?filter="+url.QueryEscape(filter))
	if err != nil {
		return nil, err
	}
	stats := map[string]int{}
	for line := range strings.Lines(page) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), ": ")
		if !ok {
			continue
		}
		if stats[name], err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("stat %s: %w", name, err)
		}
	}
	return stats, nil
}
