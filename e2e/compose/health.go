//go:build linux

package compose

import (
	"context"
	"fmt"
	"time"

	"github.com/compose-spec/compose-go/v2/types"
)

// watch makes the health checks of a container, one at a time, until ctx or the process ends. It says once when the container is healthy, and
// fails when it is not after as many tries in a row as the file allows.
func (c *container) watch(ctx context.Context, healthy func()) error {
	h := c.service.HealthCheck
	interval := duration(h.Interval, 30*time.Second)
	starting := time.Now().Add(duration(h.StartPeriod, 0))
	retries := 3
	if h.Retries != nil {
		retries = int(*h.Retries) //nolint:gosec // a small number
	}
	line := h.Test[1:]
	if h.Test[0] == "CMD-SHELL" {
		line = append([]string{"/bin/sh", "-c"}, line...)
	}
	process, well := c.process, false
	for failed := 0; ; {
		wait := interval
		if !well && time.Now().Before(starting) {
			wait = duration(h.StartInterval, 5*time.Second)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-process.Done():
			return nil // told by whoever waits for the process
		case <-time.After(wait):
		}
		out, err := c.check(ctx, line, duration(h.Timeout, 30*time.Second))
		switch {
		case err == nil:
			failed = 0
			if !well {
				well = true
				healthy()
			}
		case well || time.Now().After(starting):
			if failed++; failed >= retries && !well {
				return fmt.Errorf("is not healthy: %w: %s", err, out)
			}
		}
	}
}

func (c *container) check(ctx context.Context, line []string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return c.run(ctx, line)
}

func duration(d *types.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return time.Duration(*d)
}
