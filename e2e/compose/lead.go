//go:build linux

package compose

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/compose-spec/compose-go/v2/types"
)

// lead brings a container up: it waits for what the service depends on, starts it, and waits until it is ready; then it calls done. It returns
// when the demo stops. A failure ends the demo.
func (d *Demo) lead(c *container, done func()) {
	ready := false
	err := d.bring(c, func() { ready = true; done() })
	if err != nil && d.ctx.Err() == nil {
		d.cancel(fmt.Errorf("service %s: %w", c.service.Name, err))
	}
	if !ready {
		done()
	}
}

func (d *Demo) bring(c *container, ready func()) error {
	for name, on := range c.service.DependsOn {
		other, ok := d.containers[name]
		if !ok {
			continue // not among those that were asked for
		}
		if err := d.await(other, on.Condition); err != nil {
			return err
		}
	}
	if c.image.absent != "" {
		close(c.started)
		ready()
		return nil
	}
	if err := errors.Join(c.create(), d.failure()); err != nil {
		return err
	}
	if err := c.start(); err != nil {
		return err
	}
	if err := d.publish(c); err != nil {
		return err
	}
	close(c.started)
	return d.follow(c, ready)
}

// await waits until a service that another depends on is as that one needs it.
func (d *Demo) await(other *container, condition string) error {
	var until chan struct{}
	switch condition {
	case types.ServiceConditionStarted:
		until = other.started
	case types.ServiceConditionHealthy:
		until = other.healthy
	case types.ServiceConditionCompletedSuccessfully:
		until = other.ended
	default:
		return fmt.Errorf("depends_on: condition %q is not understood here", condition)
	}
	select {
	case <-until:
		return nil
	case <-d.ctx.Done():
		return context.Cause(d.ctx)
	}
}

// ready is closed when a container is as it should be once the demo is up.
func (c *container) ready() <-chan struct{} {
	switch {
	case c.job():
		return c.ended
	case c.service.HealthCheck != nil && c.image.absent == "":
		return c.healthy
	}
	return c.started
}

// job tells whether a service does something and ends: another waits for that.
func (c *container) job() bool {
	for _, other := range c.demo.containers {
		if on, ok := other.service.DependsOn[c.service.Name]; ok && on.Condition == types.ServiceConditionCompletedSuccessfully {
			return true
		}
	}
	return false
}

// follow waits until a container is ready, and, if it is to run on, watches its health until the demo stops.
func (d *Demo) follow(c *container, ready func()) error {
	if c.job() {
		code, err := c.process.Wait(d.ctx)
		if err != nil {
			return err
		}
		if code != 0 {
			return errors.New(c.process.Obituary())
		}
		close(c.ended)
		ready()
		return nil
	}
	if c.service.HealthCheck == nil {
		ready()
		select {
		case <-c.process.Done(): // while others are still being started
			return errors.New(c.process.Obituary())
		case <-d.up:
		case <-d.ctx.Done():
		}
		return nil
	}
	err := c.watch(d.ctx, func() { close(c.healthy); ready() })
	if err != nil {
		return fmt.Errorf("%w; %s", err, c.process.Obituary())
	}
	select {
	case <-c.healthy:
		return nil
	default:
		return errors.New(c.process.Obituary())
	}
}

// publish makes the ports of a container reachable on the host.
func (d *Demo) publish(c *container) error {
	for _, p := range c.service.Ports {
		network, ok := d.publishedOn(c)
		if !ok {
			return fmt.Errorf("port %s: the service is on internal networks only, where nothing is published", p.Published)
		}
		to := net.JoinHostPort(c.addresses[network].String(), strconv.Itoa(int(p.Target)))
		var l net.Listener
		err := d.host.do(func() (err error) {
			l, err = (&net.ListenConfig{}).Listen(d.ctx, "tcp4", net.JoinHostPort(p.HostIP, p.Published))
			return err
		})
		if err != nil {
			return fmt.Errorf("publish port %s: %w", p.Published, err)
		}
		d.forward(l, to)
	}
	return nil
}

// publishedOn is the network by which the host reaches a container.
func (d *Demo) publishedOn(c *container) (string, bool) {
	for _, network := range sorted(c.addresses) {
		if d.host.bridges[network].open {
			return network, true
		}
	}
	return "", false
}
