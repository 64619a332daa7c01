package redisbackend

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed heartbeat.lua
var heartbeatSource string

const (
	heartbeatName = 16 // bytes
	// heartbeatKey is none that a bucket can have: their hash tags have a colon.
	heartbeatKey     = "rl:{instances}"
	heartbeatTimeout = time.Second
)

// heartbeat is the connection that beats go through, where no other is at hand.
type heartbeat struct {
	mu   sync.Mutex // guards what follows, and is held while a beat is on its way
	conn *redis.Client
	over bool
}

// Beat tells Redis that the instance of that name, of 16 bytes, lives, and returns the names of all that have said so within life by Redis'
// clock, this one among them, 1,024 at most. It waits for a second at most.
func (s *Store) Beat(ctx context.Context, name string, life time.Duration) ([]string, error) {
	if len(name) != heartbeatName {
		return nil, fmt.Errorf("the name of an instance has %d bytes, not %d", heartbeatName, len(name))
	}
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	names, err := s.client.beat(ctx, name, life)
	if err != nil {
		e := asError(err, "")
		switch e.Reason {
		case ReasonReadOnly, ReasonClusterDown, ReasonMasterDown, ReasonRedirects, ReasonDial, ReasonConnection:
			s.client.suspect(e.Reason)
		}
		return nil, e
	}
	return names, nil
}

func (c *client) beat(ctx context.Context, name string, life time.Duration) ([]string, error) {
	h := &c.heartbeat
	h.mu.Lock()
	defer h.mu.Unlock()
	conn, err := c.heartbeatConn(ctx)
	if err != nil {
		return nil, err
	}
	pipe := conn.Pipeline()
	pipe.ScriptLoad(ctx, heartbeatSource)
	reply := pipe.EvalSha(ctx, heartbeatScript.sha, []string{heartbeatKey}, name, life.Milliseconds())
	if _, err = pipe.Exec(ctx); err == nil {
		return reply.StringSlice()
	}
	if h.conn != nil && !isReply(err) {
		h.dropLocked() // a pool that has failed too often would go on by itself
	}
	if !isReply(err) {
		err = &Error{Reason: ReasonConnection, MayHaveRun: true, err: err}
	}
	return nil, err
}

var heartbeatScript = newScript(heartbeatSource)

var errHeartbeatOver = &Error{Reason: ReasonClosed}

// heartbeatConn is the connection by which the cluster's node is asked for the slots, or one of its own.
func (c *client) heartbeatConn(ctx context.Context) (*redis.Client, error) {
	r := c.routes.Load()
	switch {
	case c.heartbeat.over:
		return nil, errHeartbeatOver
	case r == nil:
		return nil, c.unknown()
	case r.slots != nil:
		conn, err := r.slots.cluster.MasterForKey(ctx, heartbeatKey)
		if err != nil {
			return nil, &Error{Reason: ReasonNoNode, err: err}
		}
		return conn, nil
	}
	if c.heartbeat.conn == nil {
		c.heartbeat.conn = r.single.open()
	}
	return c.heartbeat.conn, nil
}

func (h *heartbeat) dropLocked() {
	if h.conn != nil {
		_ = h.conn.Close() // there is nobody to tell
		h.conn = nil
	}
}

// close waits for a beat that is on its way.
func (h *heartbeat) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.dropLocked()
}
