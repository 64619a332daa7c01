// Package redisstore keeps idempotency entries on Redis (one server, Sentinel or Cluster), so that all instances of a service recognise a
// retry.
//
// Each entry is one hash with a time to live, each step one script call about one key, so that it is atomic and works on a cluster. A
// failover may lose what the replica had not received yet; a retry of those requests is carried out again.
package redisstore

import (
	"context"
	_ "embed" // for the script
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/pkg/idempotency"
)

// DefaultPrefix is what keys begin with if the options do not say.
const DefaultPrefix = "idem:"

// maxPrefix is how many bytes a prefix may have.
const maxPrefix = 64

//go:embed step.lua
var source string

// Options are what a Store is made of. Client is required.
type Options struct {
	// Client is a client of a server, of Sentinel or of a cluster. It should have ContextTimeoutEnabled, or a slow Redis holds requests up for its
	// ReadTimeout instead of the middleware's StoreTimeout. Who made it closes it.
	Client redis.UniversalClient
	// Prefix begins the keys, 64 hexadecimal digits follow. Services that share a Redis, and not their retries, need one each; at most 64
	// bytes, no braces. Default: DefaultPrefix.
	Prefix string
}

// Store is an [idempotency.Store] on Redis. It is safe for concurrent use.
type Store struct {
	client redis.UniversalClient
	prefix string
	script *redis.Script
}

var _ idempotency.Store = (*Store)(nil)

// New makes a Store. It does not connect.
func New(o Options) (*Store, error) {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	var faults []error
	if o.Client == nil {
		faults = append(faults, errors.New("no client"))
	}
	if len(o.Prefix) > maxPrefix || strings.ContainsAny(o.Prefix, "{}") {
		faults = append(faults, fmt.Errorf("prefix %q: want at most %d bytes and no braces, which would put all entries on one node", o.Prefix, maxPrefix))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, fmt.Errorf("redisstore: %w", err)
	}
	return &Store{client: o.Client, prefix: o.Prefix, script: redis.NewScript(source)}, nil
}

// Claim implements idempotency.Store.
func (s *Store) Claim(ctx context.Context, c idempotency.Claim) (idempotency.Found, error) {
	reply, err := s.step(ctx, "claim", c, c.Lease).Slice()
	if err != nil {
		return idempotency.Found{}, wrap("claim", err)
	}
	found, err := foundOf(reply)
	return found, wrap("claim", err)
}

// Renew implements idempotency.Store.
func (s *Store) Renew(ctx context.Context, c idempotency.Claim) error {
	return held("renew", s.step(ctx, "renew", c, c.Lease))
}

// Complete implements idempotency.Store.
func (s *Store) Complete(ctx context.Context, c idempotency.Claim, a idempotency.Answer) error {
	return held("complete", s.step(ctx, "complete", c, a.TTL, a.Free, a.Data))
}

// Release implements idempotency.Store.
func (s *Store) Release(ctx context.Context, c idempotency.Claim) error {
	return held("release", s.step(ctx, "release", c, c.Lease))
}

// step runs the script. It is one round trip; where a server does not know the script yet, two.
func (s *Store) step(ctx context.Context, name string, c idempotency.Claim, live time.Duration, more ...any) *redis.Cmd {
	key := s.prefix + hex.EncodeToString(c.Key[:])
	ms := max(live.Milliseconds(), 1) // 0 would remove the entry
	args := append([]any{name, c.Fingerprint[:], c.Token[:], ms}, more...)
	return s.script.Run(ctx, s.client, []string{key}, args...)
}

// held reads the reply of a step that only the holder of an entry may take.
func held(name string, cmd *redis.Cmd) error {
	n, err := cmd.Int()
	if err == nil && n == 0 {
		return idempotency.ErrLost
	}
	return wrap(name, err)
}

// foundOf reads the reply of claim.
func foundOf(reply []any) (idempotency.Found, error) {
	errReply := fmt.Errorf("a reply of %d parts that the script does not give", len(reply))
	if len(reply) == 0 {
		return idempotency.Found{}, errReply
	}
	state, _ := reply[0].(int64)
	found := idempotency.Found{State: idempotency.State(state)}
	switch found.State {
	case idempotency.Claimed, idempotency.Running, idempotency.Mismatch:
		return found, nil
	case idempotency.Completed:
		if len(reply) == 3 {
			free, isFree := reply[1].(int64)
			data, isData := reply[2].(string)
			found.Free, found.Data = free == 1, []byte(data)
			if isFree && isData {
				return found, nil
			}
		}
	}
	return idempotency.Found{}, errReply
}

func wrap(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("redis: %s: %w", name, err)
}
