package redisbackend

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const (
	mostLoads     = 3                // of the script, by one call: somebody may flush it away at any time
	tryAgainAfter = time.Millisecond // while a slot moves
	usualParts    = 8
)

// group is the script calls of one Acquire, and what they are about. The caller's goroutine drives it: it sends, waits for all at once,
// and follows redirections; workers only hand calls back.
type group struct {
	store    *Store
	arrived  chan *call // has room for all parts
	timer    *time.Timer
	began    time.Time
	patience time.Duration // from then on

	buckets []ratelimit.Bucket
	results []ratelimit.Result
	parts   []part
	pending int  // parts whose calls are on their way
	over    bool // no time is left: nothing is sent any more
	undo    bool // gives back what another group took
	open    bool // what is taken may be given back, since more than one part has a say

	index   []int // what the parts' at are slices of
	slots   []uint16
	changed []ratelimit.Bucket // buckets with other operations than the caller's
	scratch []ratelimit.Result
	told    Call
	failed  Failure
}

// part is the buckets of one slot.
type part struct {
	at   []int
	sent []ratelimit.Bucket // of the whole call, with the operations that were sent
	call *call              // while it is on its way
	home *node              // where the slot is, as far as known

	moved, asked bool
	loads        int
}

func newGroup(s *Store) *group {
	g := &group{store: s, arrived: make(chan *call, usualParts), timer: time.NewTimer(time.Hour)}
	g.timer.Stop()
	return g
}

// begin takes up the buckets of a call.
func (g *group) begin(buckets []ratelimit.Bucket, results []ratelimit.Result, began time.Time, patience time.Duration) {
	g.buckets, g.results = buckets, results
	g.pending, g.over, g.undo, g.open = 0, false, false, false
	g.began, g.patience = began, patience
	g.timer.Reset(patience)
	g.split(g.store.client.slotted())
	if len(g.parts) > cap(g.arrived) {
		g.arrived = make(chan *call, len(g.parts))
	}
}

// end gives the group back for use by others.
func (g *group) end() {
	g.timer.Stop()
	g.buckets, g.results = nil, nil
	g.told, g.failed = Call{}, Failure{}
	clear(g.parts)
	clear(g.changed[:cap(g.changed)])
	g.store.groups.Put(g)
}

// send puts a part on its way. Its operations are those of buckets.
func (g *group) send(ctx context.Context, number int, buckets []ratelimit.Bucket) {
	p := &g.parts[number]
	client := g.store.client
	home, err := client.route(ctx, hashTag(buckets[p.at[0]].Key.Bytes()))
	if err != nil {
		g.fail(p, err)
		return
	}
	p.home, p.sent = home, buckets
	c := client.take()
	c.group, c.part = g, number
	c.args = append(c.args[:0], evalSHA, client.sha)
	c.args = g.store.codec.appendArgs(c.args, buckets, p.at, g.open)
	c.own()
	c.mergeable = mergeable(buckets, p.at)
	g.submit(p, c, home)
}

// evalSHA is the name of the command, as an argument that costs no allocation.
var evalSHA any = "EVALSHA"

// submit queues a call.
func (g *group) submit(p *part, c *call, n *node) {
	c.reset()
	c.node = n
	p.call = c
	if n.add(c) {
		g.pending++
		return
	}
	p.call = nil
	g.store.client.recycle(c)
	g.fail(p, n.failure(ReasonQueueFull, false, nil))
}

// finish waits for all parts, as long as there is time, and gives up those that are left.
func (g *group) finish(ctx context.Context) {
	if err := g.wait(ctx); err != nil {
		g.giveUp(err)
	}
}

// wait returns an error when the time was up before all parts were decided.
func (g *group) wait(ctx context.Context) error {
	for g.pending > 0 {
		select {
		case c := <-g.arrived:
			g.settle(ctx, c)
		case <-g.timer.C:
			return context.DeadlineExceeded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// giveUp leaves the calls that are still on their way.
func (g *group) giveUp(cause error) {
	g.over = true
	for i := range g.parts {
		if p := &g.parts[i]; p.call != nil {
			g.leave(p, cause)
		}
	}
	for g.pending > 0 { // those whose reply has just come
		g.settle(context.Background(), <-g.arrived)
	}
}

// leave leaves the call of a part, unless its reply has just come. A worker may put it back in the queue at any time.
func (g *group) leave(p *part, cause error) {
	c, n := p.call, p.call.node // the call is not ours any more once it is left
	for c.state.Load() != done {
		if c.state.CompareAndSwap(queued, withdrawn) {
			g.lose(p, n.failure(ReasonUnsent, false, cause))
			return
		}
		if c.late == nil {
			c.late = g.lateCall(p)
		}
		l := c.late
		if c.state.CompareAndSwap(sent, abandoned) {
			e := n.failure(ReasonTimeout, true, cause)
			e.late = l
			g.lose(p, e)
			g.store.client.suspect(ReasonTimeout)
			return
		}
	}
}

func (g *group) lose(p *part, err *Error) {
	p.call = nil
	g.pending--
	g.fail(p, err)
}

// settle takes in what has come of a call.
func (g *group) settle(ctx context.Context, c *call) {
	p := &g.parts[c.part]
	p.call = nil
	g.pending--
	err := c.outcome
	if err != nil && !g.over && g.again(ctx, p, c, err) {
		return
	}
	address := c.node.address
	if err == nil {
		if err = g.store.codec.readReply(c.Val(), c.place, g.buckets, p.at, g.results); err != nil {
			err = &Error{Reason: ReasonReply, Node: address, MayHaveRun: true, err: err}
		}
	}
	merged := c.place.turn > 1
	g.store.client.recycle(c)
	if err != nil {
		g.fail(p, asError(err, address))
		return
	}
	if !g.undo {
		g.told = Call{
			Node: address, Queued: g.began, Took: time.Since(g.began), Merged: merged, Buckets: g.buckets, Results: g.results, At: p.at,
		}
		g.store.client.options.OnCall(&g.told)
	}
}

// again sends a call once more if its reply says that it was not carried out, and what would help.
func (g *group) again(ctx context.Context, p *part, c *call, reply error) bool {
	if !c.answered { // may have run, or there is no node
		return false
	}
	n := c.node
	address, asked := redis.IsAskError(reply)
	moved := false
	if !asked {
		address, moved = redis.IsMovedError(reply)
	}
	switch {
	case asked && !p.asked, moved && !p.moved:
		to, err := g.store.client.redirected(n, address)
		if err != nil {
			return false
		}
		c.asking, n = asked, to
		p.asked, p.moved = p.asked || asked, p.moved || moved
		if moved {
			p.home = to
			g.store.client.suspect(ReasonRedirects)
		}
	case redis.IsTryAgainError(reply):
		if !g.breathe(ctx) {
			return false
		}
		c.asking, n = false, p.home
		p.asked, p.moved = false, false
	case redis.HasErrorPrefix(reply, "NOSCRIPT") && p.loads < mostLoads:
		c.load = true
		p.loads++
	default:
		return false
	}
	g.submit(p, c, n)
	return true
}

// breathe waits a moment, and returns false if the caller's context ended. Its timer is looked at afterwards.
func (g *group) breathe(ctx context.Context) bool {
	timer := time.NewTimer(tryAgainAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fail fills in the results of a part that cannot be decided.
func (g *group) fail(p *part, err error) {
	e := *asError(err, "")
	e.Began, e.Waited = g.began, time.Since(g.began)
	for _, i := range p.at {
		g.results[i] = ratelimit.Result{Source: ratelimit.FromStore, Err: &e}
	}
	switch e.Reason {
	case ReasonDial, ReasonConnection, ReasonReadOnly, ReasonClusterDown, ReasonMasterDown, ReasonRedirects:
		g.store.client.suspect(e.Reason)
	}
	g.failed = Failure{Error: &e, Took: e.Waited, Undo: g.undo}
	g.store.client.options.OnFailure(&g.failed)
}

// asError makes an Error of an error reply.
func asError(err error, address string) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	reason := ReasonOther
	if isReply(err) {
		reason = replyReason(err)
	}
	return &Error{Reason: reason, Node: address, err: err}
}
