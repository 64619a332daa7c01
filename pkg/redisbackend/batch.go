package redisbackend

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// renewAfter is after how many failures to connect a worker takes a new go-redis client. The pool of one that has failed PoolSize times
// stops dialling and probes once a second from then on, by a goroutine that outlives Close: too late for us, and not ours.
const (
	renewAfter     = 4
	workerPoolSize = 2 * renewAfter
)

// worker sends the calls of one node, one batch after the other. A node has few of them, so that the next batch can go when
// the last is long on its way.
type worker struct {
	node  *node
	open  connect
	conn  *redis.Client
	pipe  redis.Pipeliner
	fails int  // to connect, in a row
	up    bool // had a connection at the last attempt
	turn  turn

	calls []*call
	cmds  []redis.Cmder
	same  sameCalls
}

func (w *worker) run(ctx context.Context) {
	defer func() { _ = w.conn.Close() }() // there is nobody to tell
	w.connect()
	w.node.warm.Done()
	for {
		for !w.up && w.node.up.Load() > 0 && !w.connect() {
			if !w.pause(ctx) {
				return
			}
		}
		if !w.turn.take(ctx) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case c := <-w.node.queue:
			// Whoever else is about to add a call does so first: a worker is woken by the first one, before the callers that are ready
			// to run beside it. It costs no time when there are none.
			runtime.Gosched()
			w.gather(c)
			w.calls = w.same.merge(w.calls)
		}
		if len(w.calls) == 0 {
			continue
		}
		w.turn.lend()
		connected, broken := w.send()
		w.turn.reclaim()
		if !connected || broken {
			w.turn.pass()
		}
		if broken && ctx.Err() == nil {
			w.connect() // again, before there is a call that would wait for it
		}
		if !connected && !w.pause(ctx) {
			return
		}
	}
}

// connect gets a connection before there is a call to send: the first time, and later while another worker has one, which can send the
// calls meanwhile.
func (w *worker) connect() bool {
	ctx, cancel := context.WithTimeout(context.Background(), w.node.client.options.ConnectionTimeout)
	defer cancel()
	err := w.conn.Ping(ctx).Err()
	w.connected(err == nil || isReply(err))
	return w.up
}

// gather claims the call and those that wait behind it. Calls whose callers have left are dropped here.
func (w *worker) gather(c *call) {
	w.calls = w.calls[:0]
	for {
		if c.state.CompareAndSwap(queued, sent) {
			w.calls = append(w.calls, c)
		} else {
			w.node.client.recycle(c)
		}
		if len(w.calls) == mostInBatch {
			return
		}
		select {
		case c = <-w.node.queue:
		default:
			return
		}
	}
}

// send sends what was gathered, and tells the callers. It returns whether there was a connection, and whether that broke.
func (w *worker) send() (connected, broken bool) {
	script := w.compose()
	ctx, cancel := context.WithTimeout(context.Background(), w.node.client.options.ConnectionTimeout)
	defer cancel()
	err := w.pipe.BatchProcess(ctx, w.cmds...)
	if err == nil {
		_, err = w.pipe.Exec(ctx)
	}
	var scriptErr error
	if script.Cmd != nil {
		scriptErr = script.Err()
	}
	connected = err == nil
	for _, c := range w.calls {
		connected = connected || c.written
	}
	w.connected(connected)
	for i, c := range w.calls {
		w.tell(c, w.outcome(c, err, scriptErr), connected)
		w.calls[i] = nil
	}
	clear(w.cmds)
	return connected, connected && err != nil && !isReply(err)
}

// tell hands a call, and those that it was sent for, back to their callers, or leaves them to others if there was no connection.
func (w *worker) tell(first *call, outcome error, connected bool) {
	reply, answered, p := first.Val(), first.answered, first.place
	for c := first; c != nil; p.turn++ {
		next := c.next // the call is not ours any more afterwards
		if connected || !w.leave(c) {
			c.SetVal(reply)
			c.answered, c.place = answered, p
			w.node.client.deliver(c, outcome)
		}
		c = next
	}
}

// leave puts a call that could not be sent back in the queue, if another worker has a connection.
func (w *worker) leave(c *call) bool {
	if w.node.up.Load() == 0 {
		return false
	}
	c.clean()
	if !c.state.CompareAndSwap(sent, queued) {
		w.node.client.recycle(c)
		return true
	}
	if !w.node.add(c) {
		w.node.refuse(c, ReasonQueueFull)
	}
	return true
}

// compose lists the commands of the batch. The script is loaded at most once in it.
func (w *worker) compose() (script aside) {
	w.cmds = w.cmds[:0]
	for _, c := range w.calls {
		if c.load && script.Cmd == nil {
			script = newAside("SCRIPT", "LOAD", w.node.client.script.source)
			w.cmds = append(w.cmds, script)
		}
		if c.asking {
			w.cmds = append(w.cmds, newAside("ASKING"))
		}
		w.cmds = append(w.cmds, c)
	}
	return script
}

// outcome is nil for a call with a reply, the error reply where there is one, and else an Error. batchErr is what Exec returned: the first
// error of any command, or why there was no connection; some of the latter are error replies, to HELLO or AUTH.
func (w *worker) outcome(c *call, batchErr, scriptErr error) error {
	err := c.Err()
	if c.answered {
		if scriptErr != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			return scriptErr // why the script is not there
		}
		return err
	}
	if err == nil {
		err = batchErr
	}
	if c.written {
		return w.node.failure(ReasonConnection, true, err)
	}
	if isReply(err) {
		return w.node.failure(replyReason(err), false, err)
	}
	return w.node.failure(ReasonDial, false, err)
}

// connected keeps count of failures to connect.
func (w *worker) connected(ok bool) {
	switch {
	case ok && !w.up:
		w.node.up.Add(1)
		w.inspect()
	case !ok && w.up:
		w.node.up.Add(-1)
	}
	w.up = ok
	if ok {
		w.fails = 0
		return
	}
	w.fails++
	if w.fails%renewAfter == 0 {
		_ = w.conn.Close() // it has no connection
		w.conn = w.open()
		w.pipe = w.conn.Pipeline()
	}
}

// inspect tells how the node makes room when its memory is full. A node that keeps that to itself is not asked again.
func (w *worker) inspect() {
	tell := w.node.client.options.OnMaxMemoryPolicy
	if tell == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.node.client.options.ConnectionTimeout)
	defer cancel()
	info, err := w.conn.Info(ctx, "memory").Result()
	if err != nil {
		return
	}
	_, rest, _ := strings.Cut(info, "maxmemory_policy:")
	if policy, _, ok := strings.Cut(rest, "\r\n"); ok {
		tell(w.node.address, policy)
	}
}

// pause lets a moment pass before the next attempt to connect. The calls meanwhile wait for another worker, or until their callers give up.
func (w *worker) pause(ctx context.Context) bool {
	timer := time.NewTimer(dialBackoff)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
