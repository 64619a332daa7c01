package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/envoy-rls/envoy-rls/internal/tlsfiles"
)

// client finds the node of a bucket and keeps the nodes.
type client struct {
	options Options
	target  target
	script  luaScript
	sha     any           // of the script, as an argument that costs no allocation
	dial    redis.Options // what all connections have in common, once started
	began   time.Time

	certificates atomic.Pointer[tlsfiles.Files] // nil: no TLS, or not started

	life   context.Context // ends with close
	end    context.CancelFunc
	routes atomic.Pointer[routes] // nil until it is known what the URLs lead to
	watch  sync.WaitGroup

	mu     sync.RWMutex // guards what follows
	nodes  map[string]*node
	closed bool
	lost   error // why it is not known where buckets go

	calls sync.Pool // of *call

	errands errands
}

// routes lead from a slot to a node: always the same one, or that which the cluster names.
type routes struct {
	single *node
	slots  *slotMap
}

// newClient checks the options. It neither connects nor starts anything.
func newClient(o Options, script luaScript) (*client, error) {
	t, urlErr := parseURLs(o.URLs)
	o, err := o.withDefaults()
	if urlErr == nil {
		urlErr = agree(&o, t)
	}
	if err := errors.Join(urlErr, err); err != nil {
		return nil, err
	}
	c := &client{options: o, target: t, script: script, sha: script.sha, began: time.Now(), nodes: map[string]*node{}, closed: true}
	c.calls.New = func() any { return new(call) }
	return c, nil
}

// agree finds options and URLs that don't go together.
func agree(o *Options, t target) error {
	switch {
	case o.PasswordFile != "" && t.password != "":
		return errors.New("a password in the URL and a password file: want one of them")
	case o.SentinelPasswordFile != "" && t.sentinelPassword != "":
		return errors.New("sentinel_password in the URL and a sentinel password file: want one of them")
	case o.SentinelPasswordFile != "" && t.master == "":
		return errors.New("a sentinel password file without ?master_name=NAME in the URLs: there is no sentinel")
	case o.Mode == ModeSentinel && t.master == "":
		return errors.New("mode sentinel: want ?master_name=NAME in the URLs")
	case (o.Mode == ModeStandalone || o.Mode == ModeCluster) && t.master != "":
		return errors.New("master_name in the URLs: want mode sentinel or auto")
	case o.Mode == ModeStandalone && len(t.addresses) > 1:
		return errors.New("mode standalone: want one URL")
	case t.db != 0 && (o.Mode == ModeCluster || o.Mode == ModeAuto && len(t.addresses) > 1 && t.master == ""):
		return errors.New("a cluster has database 0 only")
	}
	return nil
}

// start reads the files and begins to connect. It waits for the first attempt to find out where buckets go, whose failure is no error: the
// attempts go on until close.
func (c *client) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	c.life, c.end = context.WithCancel(context.Background())
	c.mu.Lock()
	c.closed = false
	c.mu.Unlock()
	tried := make(chan struct{})
	c.watch.Go(func() { c.explore(tried) })
	select {
	case <-tried:
	case <-ctx.Done():
	}
	return nil
}

// prepare makes what all connections have in common.
func (c *client) prepare() error {
	o := &c.options
	if o.PasswordFile != "" {
		if _, err := readPassword(o.PasswordFile); err != nil {
			return err
		}
	}
	if o.SentinelPasswordFile != "" {
		password, err := readPassword(o.SentinelPasswordFile)
		if err != nil {
			return fmt.Errorf("sentinel %w", err)
		}
		c.target.sentinelPassword = password
	}
	const buffer = 64 << 10
	c.dial = redis.Options{
		Network:                    c.target.network,
		Protocol:                   2, // nothing is pushed to us
		DisableIdentity:            true,
		MaintNotificationsConfig:   &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		CredentialsProviderContext: o.credentials(c.target.endpoint),
		DB:                         c.target.db,
		OnConnect:                  c.loadScript,
		MaxRetries:                 -1,
		DialTimeout:                dialTimeout,
		DialerRetries:              1,
		ReadTimeout:                o.ConnectionTimeout,
		WriteTimeout:               o.ConnectionTimeout,
		ContextTimeoutEnabled:      true,
		PoolSize:                   workerPoolSize,
		PipelinePoolSize:           -1, // pipelines are all that there is
		ReadBufferSize:             buffer,
		WriteBufferSize:            buffer,
	}
	if c.target.tls {
		dialer, err := c.dialer()
		if err != nil {
			return err
		}
		c.dial.Dialer = dialer
	}
	return nil
}

// loadScript is part of each new connection: a server that was restarted, or just became a primary, has no scripts. A server that refuses
// will say so to the calls.
func (c *client) loadScript(ctx context.Context, conn *redis.Conn) error {
	if err := conn.ScriptLoad(ctx, c.script.source).Err(); !isReply(err) {
		return err
	}
	return nil
}

// close stops all that was started and waits for it.
func (c *client) close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	nodes := c.nodes
	c.nodes = map[string]*node{}
	c.mu.Unlock()
	c.end()
	c.watch.Wait()
	c.errands.close()
	var all sync.WaitGroup
	for _, n := range nodes {
		all.Go(n.close)
	}
	all.Wait()
	if r := c.routes.Swap(nil); r != nil && r.slots != nil {
		r.slots.close()
	}
}

// now is the time since the client was made.
func (c *client) now() time.Duration { return time.Since(c.began) }

// nodeAt finds or makes the node with an address. open says how to connect, if not as to any server.
func (c *client) nodeAt(address string, open connect) (*node, error) {
	c.mu.RLock()
	n, closed := c.nodes[address], c.closed
	c.mu.RUnlock()
	if n != nil || closed {
		return n, closedError(closed)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = c.nodes[address]; n != nil || c.closed {
		return n, closedError(c.closed)
	}
	if open == nil {
		dial := c.dial
		dial.Addr = address
		open = func() *redis.Client {
			o := dial // a client changes its options
			return redis.NewClient(&o)
		}
	}
	n = newNode(c, address, open)
	c.nodes[address] = n
	return n, nil
}

func closedError(closed bool) error {
	if closed {
		return &Error{Reason: ReasonClosed}
	}
	return nil
}

// route finds the node that has the buckets of a hash tag.
func (c *client) route(ctx context.Context, tag []byte) (*node, error) {
	r := c.routes.Load()
	switch {
	case r == nil:
		return nil, c.unknown()
	case r.single != nil:
		return r.single, nil
	}
	address, err := r.slots.address(ctx, tag)
	if err != nil {
		return nil, &Error{Reason: ReasonNoNode, err: err}
	}
	return c.nodeAt(address, nil)
}

// unknown says why it is not known where buckets are.
func (c *client) unknown() *Error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return &Error{Reason: ReasonClosed}
	}
	return &Error{Reason: ReasonNoNode, err: c.lost}
}

// slotted reports whether buckets of different slots may be on different nodes.
func (c *client) slotted() bool {
	r := c.routes.Load()
	return r == nil || r.single == nil
}

// take gets a call for use.
func (c *client) take() *call { return c.calls.Get().(*call) }

// recycle gives a call back that nobody else knows any more.
func (c *client) recycle(used *call) {
	used.forget()
	c.calls.Put(used)
}

// deliver tells the caller the outcome of a call that was sent, if it is still there: nil for a reply, an error reply, or an Error.
func (c *client) deliver(used *call, outcome error) {
	used.outcome = outcome
	group := used.group
	if used.state.CompareAndSwap(sent, done) {
		group.arrived <- used
		return
	}
	if used.late != nil {
		used.late.arrive(used)
	}
	c.recycle(used)
}
