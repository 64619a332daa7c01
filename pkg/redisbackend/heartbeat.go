package redisbackend

import (
	"context"
	_ "embed" // for the script
	"fmt"
	"time"
)

//go:embed heartbeat.lua
var heartbeatSource string

const (
	heartbeatName = 16 // bytes
	// heartbeatKey is none that a bucket can have: their hash tags have a colon.
	heartbeatKey = "rl:{instances}"
)

var heartbeatScript = newScript(heartbeatSource)

// Beat tells Redis that the instance of that name, of 16 bytes, lives, and returns the names of all that have said so within life by Redis'
// clock, this one among them, 1,024 at most. It waits for a second at most.
func (s *Store) Beat(ctx context.Context, name string, life time.Duration) ([]string, error) {
	if len(name) != heartbeatName {
		return nil, fmt.Errorf("the name of an instance has %d bytes, not %d", heartbeatName, len(name))
	}
	names, err := s.runErrand(ctx, heartbeatScript, []string{heartbeatKey}, name, life.Milliseconds())
	if err != nil {
		return nil, err
	}
	list, err := names.StringSlice()
	if err != nil {
		return nil, &Error{Reason: ReasonReply, MayHaveRun: true, err: err}
	}
	return list, nil
}
