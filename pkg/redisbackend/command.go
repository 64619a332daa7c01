package redisbackend

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// What has become of a call. Whoever changes the state decides who owns the call: the worker from sent on, the caller after done. A call
// that its caller has left (withdrawn, abandoned) is the worker's to give back.
const (
	queued    = iota // waits for a worker
	withdrawn        // the caller has left, so it is never sent
	sent             // a worker has it, and it counts as sent
	abandoned        // the caller has left, and doesn't learn the reply
	done             // the reply is there
)

// call is one run of the script on its way to a node and back. It is the redis.Cmder of the command, so that its reply needs no other
// object, and is used again for the next.
type call struct {
	redis.Cmd // reads and keeps the reply
	args      []any
	memory    []byte // copies of the bytes in args: the caller may be gone when they are sent
	spans     []span // what args point to

	state atomic.Int32
	group *group
	part  int   // the part of the group that it is about
	late  *late // set before the caller leaves a call that was sent
	node  *node

	outcome error // nil for a reply, an error reply, or an Error

	mergeable bool  // takes and peeks of enforced buckets only
	place     place // among identical calls; the first one is sent for all
	next      *call // of them
	last      *call // of them; the first one knows

	load     bool // SCRIPT LOAD goes first
	asking   bool // ASKING goes first
	written  bool // the command, or a part of it, may have left the process
	answered bool // the node has replied, if only with an error
}

var _ redis.Cmder = (*call)(nil)

// span is an argument that can be passed on without allocating.
type span struct{ b []byte }

// MarshalBinary is how go-redis asks for the bytes of an argument.
func (s *span) MarshalBinary() ([]byte, error) { return s.b, nil }

// Args is asked for once: when the command is written to the connection.
func (c *call) Args() []any {
	c.written = true
	if c.place.of > 1 {
		return append(c.args, c.place.of) // not kept: the call may be sent again without the others
	}
	return c.args
}

// Name is the command's.
func (c *call) Name() string { return "evalsha" }

// NoRetry keeps go-redis from sending the command a second time, whatever happens.
func (c *call) NoRetry() bool { return true }

// SetErr is told the outcome by go-redis after each reply. When a batch breaks off, go-redis sets that error also for the commands that had
// a reply before: they keep it.
func (c *call) SetErr(err error) {
	switch {
	case err == nil, isReply(err):
		c.answered = true
	case c.answered:
		return
	}
	c.Cmd.SetErr(err)
}

// reset prepares the call for being sent, once more maybe.
func (c *call) reset() {
	c.clean()
	c.state.Store(queued)
}

// clean drops what is known of the last attempt.
func (c *call) clean() {
	c.Cmd.SetErr(nil)
	c.SetVal(nil)
	c.written, c.answered = false, false
	c.place, c.next, c.last = place{1, 1}, nil, nil
}

// own copies what args have of the caller's bytes.
func (c *call) own() {
	number, size := 0, 0
	for _, a := range c.args {
		if b, ok := a.([]byte); ok {
			number, size = number+1, size+len(b)
		}
	}
	c.memory = slices.Grow(c.memory[:0], size)
	c.spans = slices.Grow(c.spans[:0], number) // so that pointers into it stay good
	for i, a := range c.args {
		b, ok := a.([]byte)
		if !ok {
			continue
		}
		start := len(c.memory)
		c.memory = append(c.memory, b...)
		c.spans = append(c.spans, span{c.memory[start:]})
		c.args[i] = &c.spans[len(c.spans)-1]
	}
}

// forget drops what the call refers to.
func (c *call) forget() {
	clear(c.args)
	c.args = c.args[:0]
	c.group, c.node, c.late = nil, nil, nil
	c.load, c.asking, c.mergeable = false, false, false
	c.reset()
}

// aside is a command that a batch carries beside its calls, sent once like them.
type aside struct{ *redis.Cmd }

// NoRetry keeps go-redis from sending the batch a second time.
func (aside) NoRetry() bool { return true }

func newAside(args ...any) aside { return aside{redis.NewCmd(context.Background(), args...)} }
