package redisbackend

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// find makes one attempt to find out where buckets go, and keeps its error for the calls that cannot be sent meanwhile.
func (c *client) find() error {
	ctx, cancel := context.WithTimeout(c.life, 2*c.options.ConnectionTimeout)
	defer cancel()
	err := c.settleIn(ctx)
	c.mu.Lock()
	c.lost = err
	c.mu.Unlock()
	return err
}

func (c *client) settleIn(ctx context.Context) error {
	mode := c.options.Mode
	if mode == ModeAuto {
		var err error
		if mode, err = c.guess(ctx); err != nil {
			return err
		}
	}
	switch mode {
	case ModeSentinel:
		return c.single("sentinel:"+c.target.master, func() *redis.Client { return redis.NewFailoverClient(c.failover()) })
	case ModeCluster:
		return c.clustered(ctx)
	default:
		return c.single(c.target.addresses[0], nil)
	}
}

// guess finds out what the URLs lead to. What would take a cluster for one server is an error: it would work until buckets of several slots
// meet in one call.
func (c *client) guess(ctx context.Context) (Mode, error) {
	switch {
	case c.target.master != "":
		return ModeSentinel, nil
	case len(c.target.addresses) > 1:
		return ModeCluster, nil
	}
	o := c.dial
	o.Addr = c.target.addresses[0]
	probe := redis.NewClient(&o)
	defer func() { _ = probe.Close() }()
	err := probe.ClusterInfo(ctx).Err()
	switch {
	case err == nil:
		return ModeCluster, nil
	case !isReply(err), redis.IsLoadingError(err), redis.IsAuthError(err):
		return "", err
	case redis.HasErrorPrefix(err, "NOPERM"):
		return greeted(ctx, probe, err)
	}
	return ModeStandalone, nil // "cluster support disabled", or a server that does not know the command
}

// greeted asks a server that refuses CLUSTER INFO for its greeting, which every user may have.
func greeted(ctx context.Context, probe *redis.Client, refused error) (Mode, error) {
	hello := redis.NewSliceCmd(ctx, "HELLO")
	if err := probe.Process(ctx, hello); !isReply(err) && err != nil {
		return "", err
	}
	fields := hello.Val()
	for i := 0; i+1 < len(fields); i += 2 {
		switch {
		case fields[i] != "mode":
		case fields[i+1] == "cluster":
			return ModeCluster, nil
		case fields[i+1] == "standalone":
			return ModeStandalone, nil
		}
	}
	return "", fmt.Errorf("whether it is a cluster is not told, so the mode must be given: %w", refused)
}

func (c *client) single(address string, open connect) error {
	n, err := c.nodeAt(address, open)
	if err != nil {
		return err
	}
	n.warm.Wait()
	c.routes.Store(&routes{single: n})
	return nil
}

// clustered loads the slots for the first time.
func (c *client) clustered(ctx context.Context) error {
	s := &slotMap{cluster: redis.NewClusterClient(c.clusterOptions())}
	if _, err := s.address(ctx, []byte("any")); err != nil {
		s.close()
		return fmt.Errorf("the slots of the cluster: %w", err)
	}
	_ = s.cluster.ForEachMaster(ctx, func(_ context.Context, primary *redis.Client) error {
		n, err := c.nodeAt(primary.Options().Addr, nil)
		if err == nil {
			n.warm.Wait()
		}
		return err
	})
	c.routes.Store(&routes{slots: s})
	return nil
}
