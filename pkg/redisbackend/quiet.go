package redisbackend

import (
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// Quiet stops go-redis, in the whole process, from writing a line to standard error for each connection that fails: what happens is told by
// Options.OnFailure. A program calls it; a library should not.
func Quiet() { redis.SetLogger(&logging.VoidLogger{}) }
