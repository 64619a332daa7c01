// Command demo runs an upstream, envoy-rls and a real Envoy in front of both, until Ctrl-C. envoy-rls keeps buckets in itself; with -store
// redis there are two of them that share a Redis Cluster. `make run` builds and starts it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// port is a port that the demo listens on. The flag's default comes from the environment, so that `make run` can be told, too.
type port struct {
	flag, use string
	number    int
}

func (p *port) env() string {
	return "DEMO_" + strings.ToUpper(strings.ReplaceAll(p.flag, "-", "_"))
}

func (p *port) addr() string { return "127.0.0.1:" + strconv.Itoa(p.number) }

type config struct {
	root, envoy, service, policies          string
	edge, envoyAdmin, grpc, admin, upstream port

	store *store
}

// ports are all that the demo may listen on.
func (c *config) ports() []*port {
	return append(c.own(), &c.store.grpc, &c.store.admin)
}

// own are the ports that every demo listens on.
func (c *config) own() []*port {
	return []*port{&c.edge, &c.envoyAdmin, &c.grpc, &c.admin, &c.upstream}
}

func parse() (*config, error) {
	c := &config{
		edge:       port{"port", "Envoy's listener", 10000},
		envoyAdmin: port{"envoy-admin-port", "Envoy's own pages", 9901},
		grpc:       port{"grpc-port", "envoy-rls, calls from Envoy", 8081},
		admin:      port{"admin-port", "envoy-rls, health and metrics", 8080},
		upstream:   port{"upstream-port", "the upstream", 9000},
		store:      newStore(),
	}
	flag.StringVar(&c.root, "root", ".", "the project's directory")
	flag.StringVar(&c.envoy, "envoy", "", "the Envoy binary")
	flag.StringVar(&c.service, "service", "bin/envoy-rls", "the envoy-rls binary")
	flag.StringVar(&c.policies, "policies", "config/policies.yaml", "the policy file")
	for _, p := range c.ports() {
		if set := os.Getenv(p.env()); set != "" {
			number, err := strconv.Atoi(set)
			if err != nil {
				return nil, fmt.Errorf("%s=%s is not a port", p.env(), set)
			}
			p.number = number
		}
		flag.IntVar(&p.number, p.flag, p.number, p.use+" (also "+p.env()+")")
	}
	flag.Parse()
	if flag.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	return c, c.store.check()
}

// checkPorts reports every port that is taken, at once.
func (c *config) checkPorts() error {
	var taken []string
	for _, p := range append(c.own(), c.store.ports()...) {
		if err := harness.CheckPort(p.number); err != nil {
			taken = append(taken, fmt.Sprintf("%v\n    it is for %s; take another: %s=PORT make run", err, p.use, p.env()))
		}
	}
	if len(taken) > 0 {
		return fmt.Errorf("cannot listen:\n  %s", strings.Join(taken, "\n  "))
	}
	return nil
}

func run() error {
	c, err := parse()
	if err != nil {
		return err
	}
	if err := c.checkPorts(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "envoy-rls-demo-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()

	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	ready, cancelReady := context.WithTimeout(ctx, time.Minute)
	defer cancelReady()
	lab, err := c.start(ready, dir)
	defer c.store.stop()
	if lab != nil {
		defer lab.Stop()
	}
	if ctx.Err() != nil {
		return nil // Ctrl-C while starting
	}
	if err != nil {
		return err
	}
	fmt.Print(c.welcome(lab.Services[0].PID()))
	return wait(ctx, lab)
}

// start starts everything.
func (c *config) start(ctx context.Context, dir string) (*harness.Lab, error) {
	if err := c.store.start(ctx, dir); err != nil {
		return nil, err
	}
	return harness.Start(ctx, harness.Options{
		EnvoyBinary:   c.envoy,
		EnvoyConfig:   filepath.Join(c.root, "envoy/envoy.yaml"),
		ServiceBinary: c.service,
		ServiceArgs:   append(c.store.serviceArgs(), "--drain-delay", "0s"), // Envoy stops first
		Policies:      c.policies,
		Dir:           dir,
		Listen:        "0.0.0.0:" + strconv.Itoa(c.edge.number),
		EnvoyAdmin:    c.envoyAdmin.addr(),
		Upstream:      c.upstream.addr(),
		Services:      append([]harness.ServiceAddress{{GRPC: c.grpc.addr(), Admin: c.admin.addr()}}, c.store.services()...),
		Denials:       os.Stdout,
		Logs:          &changes{out: os.Stdout},
	})
}

// wait returns at Ctrl-C, or with an error when one of the processes ends by itself.
func wait(ctx context.Context, lab *harness.Lab) error {
	ended := make(chan *harness.Process)
	for _, p := range lab.Processes() {
		go func() {
			<-p.Done()
			select {
			case ended <- p:
			case <-ctx.Done():
			}
		}()
	}
	select {
	case p := <-ended:
		return fmt.Errorf("%s", p.Obituary())
	case <-ctx.Done():
		fmt.Println("\nstopping")
		return nil
	}
}

// welcome says what to try. pid is the service's process.
func (c *config) welcome(pid int) string {
	edge := "localhost:" + strconv.Itoa(c.edge.number)
	return fmt.Sprintf(`
Ready: Envoy on %[1]s, envoy-rls beside it. Policies: %[2]s (edit it: the next request sees the change).
  http://localhost:%[3]d/                  what it does, second by second
  http://localhost:%[3]d/api/v1/policies   the policies in force
  http://localhost:%[3]d/api/v1/status     version, faults of the policy file, buckets
  http://localhost:%[3]d/metrics           metrics of envoy-rls
  http://localhost:%[4]d/stats?filter=ratelimit   what Envoy counts
%[6]s
An allowed call, with its limits:
  curl -i -H 'x-api-key: k1' %[1]s/
A burst into 429:
  for i in $(seq 25); do curl -s -o /dev/null -w '%%{http_code} ' -H 'x-api-key: k1' %[1]s/; done
The login limit:
  for i in $(seq 12); do curl -s -o /dev/null -w '%%{http_code} ' -H 'content-type: application/json' -d '{"username":"ann"}' %[1]s/auth/login; done
An outage of envoy-rls, and its end:
  kill -STOP %[5]d
  kill -CONT %[5]d

Denials and policy changes follow. Ctrl-C stops everything.
`, edge, c.policies, c.admin.number, c.envoyAdmin.number, pid, c.store.welcome())
}
