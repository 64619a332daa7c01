package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
)

const slots = 16384

// Cluster is a Redis Cluster in two zones, "a" and "b". Primaries alternate between them, and each replica is in the other zone than its
// primary.
type Cluster struct {
	// Nodes are all servers. As started, the first are the primaries, in the order of their slots, each with the same number of slots.
	Nodes []*Server
	o     Options
}

// busOffset is how far above its client port a node listens for other nodes, unless told otherwise.
const busOffset = 10_000

// NewCluster starts a cluster and returns when every node finds it in order. Whoever calls it stops it with [Cluster.Close] and removes
// o.Dir, which must be set. On an error nothing is left running.
func NewCluster(ctx context.Context, o Options) (*Cluster, error) {
	s, err := prepare(ctx, o)
	if err != nil {
		return nil, err
	}
	c := &Cluster{o: o}
	for i := range o.primaries() + o.replicas() {
		node := s.server(i, "node-"+strconv.Itoa(i))
		node.BusPort, node.Zone = node.Port+busOffset, c.zone(i)
		if o.Network != nil {
			node.Host = o.Network.host(node.Zone)
		}
		c.Nodes = append(c.Nodes, node)
	}
	if err := c.form(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// zone gives the zone of node i at the start.
func (c *Cluster) zone(i int) string {
	away := 0
	if i >= c.o.primaries() {
		away = 1
	}
	return string("ab"[(i%c.o.primaries()+away)%2])
}

// Close stops every node, and returns when all are gone.
func (c *Cluster) Close() {
	var all sync.WaitGroup
	for _, node := range c.Nodes {
		all.Go(node.Kill)
	}
	all.Wait()
}

// each runs f on every node at once.
func (c *Cluster) each(f func(i int, node *Server) error) error {
	errs := make([]error, len(c.Nodes))
	var all sync.WaitGroup
	for i, node := range c.Nodes {
		all.Go(func() { errs[i] = f(i, node) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (c *Cluster) form(ctx context.Context) error {
	for _, step := range []func(context.Context, int, *Server) error{c.begin, c.introduce, c.follow} {
		if err := c.each(func(i int, node *Server) error { return step(ctx, i, node) }); err != nil {
			return err
		}
	}
	return c.WaitReady(ctx)
}

// begin starts a node and gives a primary its slots.
func (c *Cluster) begin(ctx context.Context, i int, node *Server) (err error) {
	if err := node.start(ctx); err != nil {
		return err
	}
	primaries := c.o.primaries()
	if node.ID, err = node.text(ctx, "CLUSTER", "MYID"); err != nil || i >= primaries {
		return err
	}
	if _, err := node.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1); err != nil {
		return err
	}
	_, err = node.Do(ctx, "CLUSTER", "ADDSLOTSRANGE", i*slots/primaries, (i+1)*slots/primaries-1)
	return err
}

// introduce makes a node known to all after it: that they hear of each other by gossip takes seconds.
func (c *Cluster) introduce(ctx context.Context, i int, node *Server) error {
	for _, other := range c.Nodes[i+1:] {
		if _, err := node.Do(ctx, "CLUSTER", "MEET", other.Host, other.Port, other.BusPort); err != nil {
			return err
		}
	}
	return nil
}

// follow makes a replica of every node that is to be one, as soon as it knows its primary.
func (c *Cluster) follow(ctx context.Context, i int, node *Server) error {
	primaries := c.o.primaries()
	if i < primaries {
		return nil
	}
	return poll(ctx, node.Addr()+" to become a replica", func() error {
		_, err := node.Do(ctx, "CLUSTER", "REPLICATE", c.Nodes[i%primaries].ID)
		return err
	})
}

// URLs returns the URL of every node, primaries (as started) first.
func (c *Cluster) URLs() []string {
	urls := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		urls[i] = node.URL()
	}
	return urls
}

// WaitReady waits until every running node finds the cluster in order (all slots served, by primaries that it can reach), sees each other
// running node in its present role, and every running replica is in step with its primary.
func (c *Cluster) WaitReady(ctx context.Context) error {
	return c.each(func(_ int, node *Server) error {
		if !node.Running() {
			return nil
		}
		return poll(ctx, "cluster node "+node.Addr()+" to be ready", func() error { return c.ready(ctx, node) })
	})
}

func (c *Cluster) ready(ctx context.Context, node *Server) error {
	text, err := node.text(ctx, "CLUSTER", "INFO")
	if err != nil {
		return err
	}
	info := fields(text)
	if info["cluster_state"] != "ok" || info["cluster_slots_ok"] != strconv.Itoa(slots) {
		return fmt.Errorf("state %s, %s slots ok", info["cluster_state"], info["cluster_slots_ok"])
	}
	view, err := node.view(ctx)
	if err != nil {
		return err
	}
	for _, other := range c.Nodes {
		seen := view[other.ID]
		if other.Running() && (!seen.linked || seen.master && seen.slots == "") {
			return fmt.Errorf("does not know %s well: %q", other.Addr(), seen.line)
		}
	}
	return node.inStep(ctx, c.Nodes)
}

// inStep checks that a replica has its primary's data, all that the primary has sent by now, if that is one of the nodes. That the link is up says
// less: after a full synchronisation the primary holds back what is new until it hears from the replica, up to a second later.
func (s *Server) inStep(ctx context.Context, nodes []*Server) error {
	mine, err := s.Info(ctx, "replication")
	if err != nil || mine["role"] != "slave" {
		return err
	}
	if link := mine["master_link_status"]; link != "up" {
		return fmt.Errorf("replication from the primary is %s", link)
	}
	for _, primary := range nodes {
		if strconv.Itoa(primary.Port) != mine["master_port"] || !primary.Running() {
			continue
		}
		sent, err := primary.offset(ctx)
		if err != nil {
			return err
		}
		if has, err := s.offset(ctx); err != nil || has < sent {
			return fmt.Errorf("the replica has come to %d of %d: %w", has, sent, cmp.Or(err, errBehind))
		}
	}
	return nil
}

var errBehind = errors.New("it is behind")

// offset is how far a node has come in what is sent to replicas, in bytes.
func (s *Server) offset(ctx context.Context) (int64, error) {
	info, err := s.Info(ctx, "replication")
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(info["master_repl_offset"], 10, 64)
}
