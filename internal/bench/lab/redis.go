package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/redistest"
)

// Redis is the servers that hold the buckets.
type Redis struct {
	nodes   []*node
	cluster *redistest.Cluster // nil: one server, or not started here
	mine    bool               // started here
}

// node is one server.
type node struct {
	*redistest.Server
	pid int // 0: not known
}

// NodeUse is what a node has done.
type NodeUse struct {
	Addr    string
	Primary bool
	CPU     time.Duration // 0: not known
	Scripts int64         // runs
	Reads   int64         // from its connections
	Memory  int64         // bytes in use, at the end
	Keys    int64         // at the end
}

// StartRedis starts one server or, with cluster, 4 primaries with a replica each, on free ports, with nothing on disk but what is in dir.
func StartRedis(ctx context.Context, dir string, cluster bool) (*Redis, error) {
	r := &Redis{mine: true}
	o := redistest.Options{Dir: filepath.Join(dir, "redis")}
	if cluster {
		var err error
		if r.cluster, err = redistest.NewCluster(ctx, o); err != nil {
			return nil, err
		}
		for _, s := range r.cluster.Nodes {
			r.nodes = append(r.nodes, &node{Server: s})
		}
		return r, nil
	}
	s, err := redistest.NewStandalone(ctx, o)
	r.nodes = []*node{{Server: s}}
	return r, err
}

// ConnectRedis looks at servers that somebody else runs, by address or URL. Their CPU is known if they run on this machine.
func ConnectRedis(ctx context.Context, addresses []string) (*Redis, error) {
	r := &Redis{}
	for _, address := range addresses {
		s, err := redistest.Connect(address)
		if err != nil {
			return nil, err
		}
		info, err := s.Info(ctx, "server")
		if err != nil {
			return nil, err
		}
		n := &node{Server: s}
		if local(s.Host) {
			n.pid, _ = strconv.Atoi(info["process_id"]) // 0 is: not known
		}
		r.nodes = append(r.nodes, n)
	}
	return r, nil
}

// Close ends servers that were started here.
func (r *Redis) Close() {
	if !r.mine {
		return
	}
	if r.cluster != nil {
		r.cluster.Close()
		return
	}
	for _, n := range r.nodes {
		n.Kill()
	}
}

// URLs are for --redis-url.
func (r *Redis) URLs() []string {
	var urls []string
	for _, n := range r.nodes {
		urls = append(urls, n.URL())
	}
	return urls
}

// Version is that of the first server.
func (r *Redis) Version(ctx context.Context) (string, error) {
	info, err := r.nodes[0].Info(ctx, "server")
	return info["redis_version"], err
}

// use is what each node has done since it was started, by address. Those that do not answer are left out, but one must.
// begins says that what is measured comes after, otherwise it was before: what it takes to ask must not count.
func (r *Redis) use(ctx context.Context, begins bool) (map[string]NodeUse, error) {
	all := map[string]NodeUse{}
	var errs []error
	for _, n := range r.nodes {
		if n.pid == 0 && r.mine && !n.Running() {
			continue
		}
		u, err := n.use(ctx, begins)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all[u.Addr] = u
	}
	if len(all) == 0 {
		return nil, errors.Join(append(errs, errors.New("no Redis answers"))...)
	}
	return all, nil
}

func (n *node) use(ctx context.Context, begins bool) (u NodeUse, err error) {
	if !begins {
		if u.CPU, err = n.cpu(); err != nil {
			return u, err
		}
	}
	info, err := n.Info(ctx, "everything")
	if err != nil {
		return u, err
	}
	stats, err := n.CommandStats(ctx)
	if err != nil {
		return u, err
	}
	u.Addr, u.Primary, u.Scripts = n.Addr(), info["role"] == "master", stats["evalsha"].Calls
	u.Reads, _ = strconv.ParseInt(info["total_reads_processed"], 10, 64) // an old Redis does not tell
	u.Memory, _ = strconv.ParseInt(info["used_memory"], 10, 64)
	_, _ = fmt.Sscanf(info["db0"], "keys=%d", &u.Keys) // an empty one is not listed
	if begins {
		u.CPU, err = n.cpu()
	}
	return u, err
}

// cpu is 0 if it is not known.
func (n *node) cpu() (time.Duration, error) {
	if pid := cmp.Or(n.pid, n.Pid()); pid != 0 {
		return CPU(pid)
	}
	return 0, nil
}

// since are the nodes that were there before and after, by address.
func since(after, before map[string]NodeUse) []NodeUse {
	var out []NodeUse
	for addr, b := range before {
		a, there := after[addr]
		if !there {
			continue // it was killed
		}
		a.CPU, a.Scripts, a.Reads = a.CPU-b.CPU, a.Scripts-b.Scripts, a.Reads-b.Reads
		out = append(out, a)
	}
	return sortedByAddr(out)
}

// Empty removes all keys.
func (r *Redis) Empty(ctx context.Context) error {
	primaries, err := r.primaries(ctx)
	if err != nil {
		return err
	}
	for _, n := range primaries {
		if _, err := n.Do(ctx, "FLUSHALL"); err != nil {
			return err
		}
	}
	return nil
}

func (r *Redis) primaries(ctx context.Context) ([]*redistest.Server, error) {
	if r.cluster != nil {
		return r.cluster.Primaries(ctx)
	}
	var all []*redistest.Server
	for _, n := range r.nodes {
		all = append(all, n.Server)
	}
	return all, nil
}

// KillShard kills a primary of the cluster. Mend brings it back.
func (r *Redis) KillShard(ctx context.Context) error {
	if r.cluster == nil {
		return errors.New("only a cluster has a shard to kill")
	}
	primaries, err := r.cluster.Primaries(ctx)
	if err != nil {
		return err
	}
	primaries[0].Kill()
	return nil
}

// Mend starts the nodes that were killed, and returns when the cluster is in order.
func (r *Redis) Mend(ctx context.Context) error {
	if r.cluster == nil {
		return nil
	}
	for _, n := range r.cluster.Nodes {
		if !n.Running() {
			if err := n.Restart(ctx); err != nil {
				return err
			}
		}
	}
	return r.cluster.WaitReady(ctx)
}
