package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// nodeView is what one node knows of another: a line of CLUSTER NODES.
type nodeView struct {
	line    string
	primary string // the ID of its primary; "-" for a primary
	slots   string // its slots as ranges; empty: none
	linked  bool   // known, connected, not suspected of having failed
	master  bool
}

// view asks a node for what it knows, by ID.
func (s *Server) view(ctx context.Context) (map[string]nodeView, error) {
	text, err := s.text(ctx, "CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	view := map[string]nodeView{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line) // id, address, flags, primary, ping, pong, epoch, link, slots …
		if len(words) < 8 {
			return nil, fmt.Errorf("redis %s: CLUSTER NODES: %q", s.Addr(), line)
		}
		flags := strings.Split(words[2], ",")
		troubled := slices.ContainsFunc(flags, func(flag string) bool {
			return flag == "handshake" || flag == "noaddr" || strings.HasPrefix(flag, "fail")
		})
		view[words[0]] = nodeView{
			line:    strings.TrimSpace(line),
			primary: words[3],
			slots:   strings.Join(words[8:], " "),
			linked:  words[7] == "connected" && !troubled,
			master:  slices.Contains(flags, "master"),
		}
	}
	return view, nil
}

// Slot returns the slot of a key.
func (c *Cluster) Slot(ctx context.Context, key string) (int, error) {
	node, err := c.running()
	if err != nil {
		return 0, err
	}
	reply, err := node.Do(ctx, "CLUSTER", "KEYSLOT", key)
	if err != nil {
		return 0, err
	}
	return int(reply.(int64)), nil
}

// Primary returns the node that serves a key at present, as the running nodes see it.
func (c *Cluster) Primary(ctx context.Context, key string) (*Server, error) {
	slot, err := c.Slot(ctx, key)
	if err != nil {
		return nil, err
	}
	return c.Owner(ctx, slot)
}

// Owner returns the node that serves a slot at present, as the running nodes see it.
func (c *Cluster) Owner(ctx context.Context, slot int) (*Server, error) {
	node, err := c.running()
	if err != nil {
		return nil, err
	}
	view, err := node.view(ctx)
	if err != nil {
		return nil, err
	}
	for id, seen := range view {
		if seen.serves(slot) {
			return c.node(id)
		}
	}
	return nil, fmt.Errorf("no node serves slot %d", slot)
}

func (v nodeView) serves(slot int) bool {
	for _, word := range strings.Fields(v.slots) {
		var first, last int
		switch n, _ := fmt.Sscanf(word, "%d-%d", &first, &last); n {
		case 1:
			last = first
		case 0:
			continue // "[slot->-node]": moving
		}
		if first <= slot && slot <= last {
			return true
		}
	}
	return false
}

// Primaries returns the nodes that are primaries at present, as the running nodes see it, in the order of Nodes.
func (c *Cluster) Primaries(ctx context.Context) ([]*Server, error) {
	return c.filter(ctx, func(v nodeView) bool { return v.master && v.slots != "" })
}

// Replicas returns the replicas of a node at present, as the running nodes see it, in the order of Nodes.
func (c *Cluster) Replicas(ctx context.Context, primary *Server) ([]*Server, error) {
	return c.filter(ctx, func(v nodeView) bool { return v.primary == primary.ID })
}

func (c *Cluster) filter(ctx context.Context, want func(nodeView) bool) ([]*Server, error) {
	asked, err := c.running()
	if err != nil {
		return nil, err
	}
	view, err := asked.view(ctx)
	if err != nil {
		return nil, err
	}
	var nodes []*Server
	for _, node := range c.Nodes {
		if want(view[node.ID]) {
			nodes = append(nodes, node)
		}
	}
	return nodes, nil
}

func (c *Cluster) node(id string) (*Server, error) {
	for _, node := range c.Nodes {
		if node.ID == id {
			return node, nil
		}
	}
	return nil, fmt.Errorf("node %s is none of ours", id)
}

// running returns a node that can be asked.
func (c *Cluster) running() (*Server, error) {
	for _, node := range c.Nodes {
		if node.Running() {
			return node, nil
		}
	}
	return nil, fmt.Errorf("no node of the cluster is running")
}
