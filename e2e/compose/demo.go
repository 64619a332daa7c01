//go:build linux

package compose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/compose-spec/compose-go/v2/types"

	"github.com/envoy-rls/envoy-rls/e2e/harness"
)

// Options say what is started, and with what.
type Options struct {
	Services []string  // only these, without what they depend on; empty: all
	Envoy    string    // the binary that stands for Envoy's image; needed if a service uses that
	Dir      string    // an existing directory for all files; its owner removes it after Stop
	Logs     io.Writer // gets what the processes write; may be nil
}

// Demo is a project that runs.
type Demo struct {
	project    *types.Project
	envoy, dir string
	logs       io.Writer

	host       *host
	containers map[string]*container

	mu         sync.Mutex
	forwarders []*forwarder

	cancel context.CancelCauseFunc
	ctx    context.Context // ends when something fails, with the reason, or at Stop
	up     chan struct{}   // closed when all services are ready
	all    sync.WaitGroup
}

// Start starts a project that [Load] has read. It returns when every service is healthy, runs if it has no health check, or has ended well if
// others wait for that. On an error nothing is left running.
func Start(ctx context.Context, p *types.Project, o Options) (*Demo, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("namespaces need root")
	}
	d := &Demo{project: p, envoy: o.Envoy, dir: o.Dir, logs: o.Logs, containers: map[string]*container{}, up: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := d.start(ctx, o.Services); err != nil {
		d.Stop()
		return nil, err
	}
	return d, nil
}

func (d *Demo) start(ctx context.Context, only []string) error {
	var err error
	if d.host, err = newHost(d.project.Networks); err != nil {
		return err
	}
	if err := d.addresses(only); err != nil {
		return err
	}
	if err := d.images(ctx); err != nil {
		return err
	}
	var services sync.WaitGroup
	for _, c := range d.containers {
		services.Add(1)
		d.all.Go(func() { d.lead(c, services.Done) })
	}
	d.all.Go(func() { services.Wait(); close(d.up) })
	select {
	case <-d.up:
		return d.failure()
	case <-d.ctx.Done():
		return context.Cause(d.ctx)
	case <-ctx.Done():
		return fmt.Errorf("%w; %s", ctx.Err(), d.waiting())
	}
}

// failure is why something has failed, if it has.
func (d *Demo) failure() error {
	if d.ctx.Err() != nil {
		return context.Cause(d.ctx)
	}
	return nil
}

// waiting names the services that are not yet as others need them.
func (d *Demo) waiting() string {
	var names []string
	for _, name := range sorted(d.containers) {
		select {
		case <-d.containers[name].ready():
		default:
			names = append(names, name)
		}
	}
	return "not ready: " + strings.Join(names, ", ")
}

// addresses gives every container its addresses, those that the file names first, and then every container the names of those it can reach.
func (d *Demo) addresses(only []string) error {
	for name, s := range d.project.Services {
		if len(only) > 0 && !slices.Contains(only, name) {
			continue
		}
		d.containers[name] = &container{
			service: s, demo: d, dir: filepath.Join(d.dir, "services", name), addresses: map[string]netip.Addr{},
			started: make(chan struct{}), healthy: make(chan struct{}), ended: make(chan struct{}),
		}
	}
	for _, written := range []bool{true, false} {
		for _, name := range sorted(d.containers) {
			c := d.containers[name]
			for network, at := range c.service.Networks {
				if (at != nil && at.Ipv4Address != "") != written {
					continue
				}
				var err error
				if written {
					c.addresses[network], err = d.host.bridges[network].reserve(name, at.Ipv4Address)
				} else {
					c.addresses[network], err = d.host.bridges[network].lease(name)
				}
				if err != nil {
					return fmt.Errorf("service %s: network %s: %w", name, network, err)
				}
			}
		}
	}
	for _, c := range d.containers {
		c.hosts = d.hosts(c)
	}
	return nil
}

// hosts is /etc/hosts for a container: the services that are on one of its networks.
func (d *Demo) hosts(c *container) string {
	text := "127.0.0.1 localhost\n"
	for _, name := range sorted(d.containers) {
		for _, network := range sorted(d.containers[name].addresses) {
			if _, ok := c.addresses[network]; ok {
				text += d.containers[name].addresses[network].String() + " " + name + "\n"
			}
		}
	}
	return text
}

func (d *Demo) images(ctx context.Context) error {
	b := &builder{dir: filepath.Join(d.dir, "images"), made: map[string]*image{}}
	if err := os.MkdirAll(b.dir, 0o755); err != nil {
		return err
	}
	for _, name := range sorted(d.containers) {
		c := d.containers[name]
		var err error
		if c.service.Build != nil {
			c.image, err = b.build(ctx, c.service.Build)
		} else {
			c.image, err = publicImage(c.service.Image, d.envoy)
		}
		if err == nil && isRoot(c.user()) {
			err = errors.New("runs as root; give it a user")
		}
		if err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
	}
	return nil
}

// Stop ends all processes and takes everything down.
func (d *Demo) Stop() {
	d.cancel(errors.New("stopped"))
	d.all.Wait()
	for _, f := range d.forwarders {
		f.close()
	}
	var stopped sync.WaitGroup
	for _, c := range d.containers {
		stopped.Go(c.remove)
	}
	stopped.Wait()
	if d.host != nil && d.host.space != nil {
		d.host.close()
	}
}

// Dial connects from the host, where the ports of the file are published. The address is an IP address with a port.
func (d *Demo) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return d.host.dial(ctx, network, address)
}

// Forward makes a published port reachable from this process, at the address that it returns.
func (d *Demo) Forward(port int) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(d.ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	d.forward(l, "127.0.0.1:"+strconv.Itoa(port))
	return l.Addr().String(), nil
}

// forward joins what connects to a listener with an address that the host reaches, until Stop.
func (d *Demo) forward(l net.Listener, to string) {
	f := forward(l, func(ctx context.Context) (net.Conn, error) { return d.Dial(ctx, "tcp", to) })
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forwarders = append(d.forwarders, f)
}

// Host runs a program on the host and returns what it prints.
func (d *Demo) Host(name string, args ...string) (string, error) {
	return d.host.command(name, args...)
}

// Exec runs a program in the container of a service and returns what it prints.
func (d *Demo) Exec(ctx context.Context, service string, line ...string) (string, error) {
	return d.containers[service].run(ctx, line)
}

// Process is the process of a service.
func (d *Demo) Process(service string) *harness.Process { return d.containers[service].process }

// Kill ends the process of a service without a warning.
func (d *Demo) Kill(service string) error {
	c := d.containers[service]
	if err := c.process.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-c.process.Done()
	return nil
}

// StopService asks the process of a service to end, and ends it after the grace period.
func (d *Demo) StopService(service string) { d.containers[service].stop() }

// StartService starts a service that was stopped or killed again, with its addresses and volumes, and returns when it is healthy, if it has a
// health check.
func (d *Demo) StartService(ctx context.Context, service string) error {
	c := d.containers[service]
	if err := c.start(); err != nil || c.service.HealthCheck == nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	well := false
	err := c.watch(ctx, func() { well = true; cancel() })
	if err == nil && !well {
		err = errors.New(c.process.Obituary())
	}
	return err
}

// Cut takes a network down: what is sent over it vanishes. Join ends that.
func (d *Demo) Cut(network string) error { return d.host.join(network, false) }

// Join lets a network carry packets again.
func (d *Demo) Join(network string) error { return d.host.join(network, true) }
