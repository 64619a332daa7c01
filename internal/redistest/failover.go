package redistest

import (
	"context"
	"errors"
	"fmt"
)

// Failover makes a replica of primary the primary, by CLUSTER FAILOVER, and returns it once every running node agrees. Both must be running.
func (c *Cluster) Failover(ctx context.Context, primary *Server) (*Server, error) {
	replicas, err := c.Replicas(ctx, primary)
	if err != nil {
		return nil, err
	}
	if len(replicas) == 0 {
		return nil, fmt.Errorf("%s has no replica", primary.Addr())
	}
	if _, err := replicas[0].Do(ctx, "CLUSTER", "FAILOVER"); err != nil {
		return nil, err
	}
	return c.AwaitPromotion(ctx, primary)
}

// AwaitPromotion waits until one of the replicas that old had at the start has its slots and every running node agrees, and returns that one.
// After a kill or a pause that takes the cluster about twice its node timeout.
func (c *Cluster) AwaitPromotion(ctx context.Context, old *Server) (*Server, error) {
	var promoted *Server
	err := c.each(func(_ int, node *Server) error {
		if !node.Running() {
			return nil
		}
		return poll(ctx, node.Addr()+" to see "+old.Addr()+" replaced", func() error {
			view, err := node.view(ctx)
			if err != nil {
				return err
			}
			if view[old.ID].slots != "" {
				return errors.New("it still has slots")
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	for _, candidate := range c.family(old) {
		view, err := candidate.view(ctx)
		if err == nil && view[candidate.ID].slots != "" {
			promoted = candidate
		}
	}
	if promoted == nil {
		return nil, fmt.Errorf("%s lost its slots to a node that was no replica of it", old.Addr())
	}
	return promoted, c.WaitReady(ctx)
}

// family returns the other running nodes that started with the same slots as node.
func (c *Cluster) family(node *Server) []*Server {
	place := func(n *Server) int {
		for i, other := range c.Nodes {
			if other == n {
				return i % c.o.primaries()
			}
		}
		return -1
	}
	var others []*Server
	for _, other := range c.Nodes {
		if other != node && other.Running() && place(other) == place(node) {
			others = append(others, other)
		}
	}
	return others
}
