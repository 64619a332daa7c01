package redisbackend

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	exploreEvery    = 200 * time.Millisecond // while it is unknown where buckets go
	reloadEvery     = 2 * time.Second        // the slots, when nothing happens
	reloadAtMost    = 200 * time.Millisecond // between two reloads, whatever happens
	forgetNodeAfter = 5 * time.Minute        // without a call
	forgetDeadAfter = 10 * time.Second       // without a call or a connection
	lookForUnused   = 5 * time.Second
	slotMapPoolSize = 1024 // connections that the slot map may have to a node: one or two, but see renewAfter
)

// slotMap knows which node has which slot. It is go-redis's cluster client, of which nothing else is used: its pipelines would send
// commands a second time.
type slotMap struct {
	cluster  *redis.ClusterClient
	reloaded atomic.Int64 // when, in nanoseconds since the client started
}

// address of the node that has the slot of a hash tag. Once the map was loaded this asks nobody.
func (s *slotMap) address(ctx context.Context, tag []byte) (string, error) {
	c, err := s.cluster.MasterForKey(ctx, string(tag))
	if err != nil {
		return "", err
	}
	return c.Options().Addr, nil
}

func (s *slotMap) close() { _ = s.cluster.Close() } // there is nobody to tell

// explore finds out where buckets go, and then forgets nodes that nobody calls any more. It closes tried after its first attempt.
func (c *client) explore(tried chan<- struct{}) {
	err := c.find()
	close(tried)
	for err != nil {
		if !c.sleep(exploreEvery) {
			return
		}
		err = c.find()
	}
	for c.sleep(lookForUnused) {
		c.forgetUnused()
	}
}

func (c *client) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-c.life.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (c *client) clusterOptions() *redis.ClusterOptions {
	d := &c.dial
	return &redis.ClusterOptions{
		Addrs:                      c.target.addresses,
		Protocol:                   d.Protocol,
		DisableIdentity:            true,
		MaintNotificationsConfig:   d.MaintNotificationsConfig,
		CredentialsProviderContext: d.CredentialsProviderContext,
		MaxRedirects:               -1,
		MaxRetries:                 -1,
		DialTimeout:                d.DialTimeout,
		DialerRetries:              d.DialerRetries,
		ReadTimeout:                d.ReadTimeout,
		WriteTimeout:               d.WriteTimeout,
		ContextTimeoutEnabled:      true,
		PoolSize:                   slotMapPoolSize,
		PipelinePoolSize:           -1,
		Dialer:                     d.Dialer,
		ClusterStateReloadInterval: reloadEvery,
	}
}

func (c *client) failover() *redis.FailoverOptions {
	d := &c.dial
	return &redis.FailoverOptions{
		MasterName:                 c.target.master,
		SentinelAddrs:              c.target.addresses,
		SentinelUsername:           c.target.sentinelUsername,
		SentinelPassword:           c.target.sentinelPassword,
		Protocol:                   d.Protocol,
		DisableIdentity:            true,
		CredentialsProviderContext: d.CredentialsProviderContext,
		DB:                         d.DB,
		OnConnect:                  d.OnConnect,
		MaxRetries:                 -1,
		DialTimeout:                d.DialTimeout,
		DialerRetries:              d.DialerRetries,
		ReadTimeout:                d.ReadTimeout,
		WriteTimeout:               d.WriteTimeout,
		ContextTimeoutEnabled:      true,
		PoolSize:                   d.PoolSize,
		PipelinePoolSize:           -1,
		ReadBufferSize:             d.ReadBufferSize,
		WriteBufferSize:            d.WriteBufferSize,
		Dialer:                     d.Dialer,
	}
}

// Relearn asks the cluster for its slots anew, at most once in 200 ms: for whoever makes no calls to a node in trouble, whose errors would have
// that effect. It does not wait.
func (s *Store) Relearn() { s.client.suspect(ReasonWithheld) }

// suspect asks the cluster for its slots anew, since a node said or failed to say something. go-redis doesn't do that by itself when a
// connection is refused.
func (c *client) suspect(why Reason) {
	r := c.routes.Load()
	if r == nil || r.slots == nil {
		return
	}
	now, last := int64(c.now()), r.slots.reloaded.Load()
	if now-last < int64(reloadAtMost) || !r.slots.reloaded.CompareAndSwap(last, now) {
		return
	}
	r.slots.cluster.ReloadState(c.life)
	c.options.OnReload(why)
}

// redirected finds the node that another one named in a MOVED or ASK reply. An address without a host is on the host that replied.
func (c *client) redirected(from *node, address string) (*node, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("redirected to %q: %w", address, err)
	}
	if host == "" {
		if host, _, err = net.SplitHostPort(from.address); err != nil {
			return nil, err
		}
	}
	return c.nodeAt(net.JoinHostPort(host, port), nil)
}

// forgetUnused closes nodes that were not called for long: they left the cluster, maybe.
func (c *client) forgetUnused() {
	r := c.routes.Load()
	if r.slots == nil {
		return
	}
	c.mu.Lock()
	var unused []*node
	for address, n := range c.nodes {
		if idle := c.now() - time.Duration(n.used.Load()); idle > forgetNodeAfter || idle > forgetDeadAfter && n.up.Load() == 0 {
			delete(c.nodes, address)
			unused = append(unused, n)
		}
	}
	c.mu.Unlock()
	for _, n := range unused {
		n.close()
	}
}
