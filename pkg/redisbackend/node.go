package redisbackend

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	queueLength = 1024 // calls that wait for one node; more fail at once
	mostInBatch = 256  // calls that are sent in one go
	dialBackoff = 20 * time.Millisecond
)

// node is one Redis server, and the calls that wait for it. Its workers take turns to send what has piled up while a batch was on its way as one
// pipeline: the busier the node, the larger the batches.
type node struct {
	address string
	client  *client
	open    connect
	queue   chan *call
	used    atomic.Int64 // when last a call was added, or the node was made, in nanoseconds since the client started
	up      atomic.Int32 // workers that have a connection, as far as they know
	stop    context.CancelFunc
	workers sync.WaitGroup
	warm    sync.WaitGroup // until every worker has tried to connect
}

// connect gives each worker its own go-redis client.
type connect func() *redis.Client

func newNode(c *client, address string, open connect) *node {
	ctx, stop := context.WithCancel(c.life)
	n := &node{address: address, client: c, open: open, queue: make(chan *call, queueLength), stop: stop}
	n.used.Store(int64(c.now()))
	n.warm.Add(c.options.workers())
	turns := newTurns()
	for range c.options.workers() {
		w := &worker{node: n, open: open, conn: open(), same: sameCalls{seed: maphash.MakeSeed()}, turn: newTurn(turns)}
		w.pipe = w.conn.Pipeline()
		n.workers.Go(func() { w.run(ctx) })
	}
	return n
}

// add puts a call in the queue. It returns false if that is full.
func (n *node) add(c *call) bool {
	select {
	case n.queue <- c:
		n.used.Store(int64(n.client.now()))
		return true
	default:
		return false
	}
}

// close stops the workers, waits for them, and fails the calls that nobody will send any more. A call that is added later waits until
// its caller gives up.
func (n *node) close() {
	n.stop()
	n.workers.Wait()
	for {
		select {
		case c := <-n.queue:
			n.refuse(c, ReasonClosed)
		default:
			return
		}
	}
}

// failure is an Error of this node.
func (n *node) failure(r Reason, mayHaveRun bool, err error) *Error {
	return &Error{Reason: r, Node: n.address, MayHaveRun: mayHaveRun, err: err}
}

// refuse fails a call that waits to be sent.
func (n *node) refuse(c *call, why Reason) {
	if c.state.CompareAndSwap(queued, sent) {
		n.client.deliver(c, n.failure(why, false, nil))
		return
	}
	n.client.recycle(c)
}
