package redisbackend

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// errandTimeout is how long a script beside the decisions may take.
const errandTimeout = time.Second

// errands is the connection that scripts beside the decisions, such as the heartbeat, go through, where no other is at hand.
type errands struct {
	mu   sync.Mutex // guards what follows, and is held while a script is on its way
	conn *redis.Client
	over bool
}

// Script is a Lua script for [Store.Run].
type Script struct{ luaScript }

// NewScript makes a Script of its source. It needs no commands but those of docs/redis.md's user.
func NewScript(source string) *Script { return &Script{newScript(source)} }

// Run has Redis run a script that has nothing to do with buckets, on keys of one hash tag. It waits for a second at most, and never runs it
// twice. The reply is as go-redis gives it; an error is an *Error, whose MayHaveRun says whether the script may have run.
func (s *Store) Run(ctx context.Context, script *Script, keys []string, args ...any) (any, error) {
	reply, err := s.runErrand(ctx, script.luaScript, keys, args...)
	if err != nil {
		return nil, err
	}
	return reply.Val(), nil
}

// runErrand runs a script where it holds up no decision.
func (s *Store) runErrand(ctx context.Context, script luaScript, keys []string, args ...any) (*redis.Cmd, error) {
	ctx, cancel := context.WithTimeout(ctx, errandTimeout)
	defer cancel()
	reply, err := s.client.runErrand(ctx, script, keys, args)
	if err != nil {
		e := asError(err, "")
		switch e.Reason {
		case ReasonReadOnly, ReasonClusterDown, ReasonMasterDown, ReasonRedirects, ReasonDial, ReasonConnection:
			s.client.suspect(e.Reason)
		}
		return nil, e
	}
	return reply, nil
}

func (c *client) runErrand(ctx context.Context, script luaScript, keys []string, args []any) (*redis.Cmd, error) {
	e := &c.errands
	e.mu.Lock()
	defer e.mu.Unlock()
	conn, err := c.errandConn(ctx, keys[0])
	if err != nil {
		return nil, err
	}
	pipe := conn.Pipeline()
	pipe.ScriptLoad(ctx, script.source)
	reply := pipe.EvalSha(ctx, script.sha, keys, args...)
	if _, err = pipe.Exec(ctx); err == nil {
		return reply, nil
	}
	if e.conn != nil && !isReply(err) {
		e.dropLocked() // a pool that has failed too often would go on by itself
	}
	if !isReply(err) {
		err = &Error{Reason: ReasonConnection, MayHaveRun: true, err: err}
	}
	return nil, err
}

var errErrandsOver = &Error{Reason: ReasonClosed}

// errandConn is the connection by which the cluster's node is asked for the slots, or one of its own.
func (c *client) errandConn(ctx context.Context, key string) (*redis.Client, error) {
	r := c.routes.Load()
	switch {
	case c.errands.over:
		return nil, errErrandsOver
	case r == nil:
		return nil, c.unknown()
	case r.slots != nil:
		conn, err := r.slots.cluster.MasterForKey(ctx, key)
		if err != nil {
			return nil, &Error{Reason: ReasonNoNode, err: err}
		}
		return conn, nil
	}
	if c.errands.conn == nil {
		c.errands.conn = r.single.open()
	}
	return c.errands.conn, nil
}

func (e *errands) dropLocked() {
	if e.conn != nil {
		_ = e.conn.Close() // there is nobody to tell
		e.conn = nil
	}
}

// close waits for a script that is on its way.
func (e *errands) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.over = true
	e.dropLocked()
}
