// Package board is what instances that use one Redis tell each other beside the buckets: what is blocked, which buckets an operator has
// changed, what operators have done, and what each instance says of itself.
//
// It asks Redis a few times a second, so that what it missed is made up for as soon as Redis answers. Everything that stands in Redis is
// taken for something that anybody may have written: it is bounded and checked, and what is not understood is left out.
package board

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// Redis runs scripts, as [redisbackend.Store.Run] does.
type Redis interface {
	Run(ctx context.Context, script *redisbackend.Script, keys []string, args ...any) (any, error)
}

// Notice says that an operator has changed a bucket in Redis.
type Notice struct {
	Key policy.Key
	// Remaining is what it has left since.
	Remaining float64
	// Refund: something was given back, and what was decided before still counts. Otherwise the bucket was given another state.
	Refund bool
}

// Options are what a Board is made of. All are required.
type Options struct {
	Redis Redis
	// ID names this instance; no other has it. At most 32 bytes.
	ID string
	// Blocks is told what is blocked.
	Blocks *blocklist.Store
	// OnNotice is told of each notice once: of other instances' within a second, of this one's before Notify returns.
	OnNotice func(Notice)
	// OnPoll is told what came of each question to Redis.
	OnPoll func(error)
	// Record is what this instance says of itself, MaxRecord bytes at most.
	Record func() []byte
}

const (
	// every is how often Redis is asked: a notice arrives within a second, though one answer is late.
	every = 400 * time.Millisecond
	// recordEvery is how often the instance's record is renewed, and recordLife how long it stands in Redis after that.
	recordEvery, recordLife = 2 * time.Second, 10 * time.Second
	// attempts is how often a change of the list is tried while others change it.
	attempts = 10
)

// The keys are none that a bucket can have: their hash tags have a colon. They share a slot.
const (
	blocksKey  = "rl:{instances}:blocks"
	noticesKey = "rl:{instances}:notices"
	auditKey   = "rl:{instances}:audit"
	recordKey  = "rl:{instances}:at:" // and the ID
)

// Board is safe for concurrent use.
type Board struct {
	options Options

	mu      sync.Mutex // held by who asks Redis; guards what follows
	version string     // of the list that Blocks has; empty: none yet
	heard   string     // version of the notices that were told of; empty: none yet
	known   map[string]bool
	started bool // the first answer has come: notices before it are of no concern
}

// New makes a Board. It asks nobody.
func New(o Options) *Board { return &Board{options: o, known: map[string]bool{}} }

// Run asks Redis until ctx ends.
func (b *Board) Run(ctx context.Context) {
	var published time.Time
	for {
		err := b.Poll(ctx)
		if now := time.Now(); err == nil && now.Sub(published) >= recordEvery {
			if err = b.publish(ctx); err == nil {
				published = now
			}
		}
		if ctx.Err() == nil {
			b.options.OnPoll(err)
		}
		pause := time.NewTimer(every - rand.N(every/4)) // instances that were started at once do not ask at once for ever
		select {
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
	}
}

// Poll asks Redis once for what is new.
func (b *Board) Poll(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.pollLocked(ctx)
	return err
}

// pollLocked takes in what is new, and returns the version of the list in Redis.
func (b *Board) pollLocked(ctx context.Context) (stored string, err error) {
	reply, err := b.options.Redis.Run(ctx, pollScript, []string{blocksKey, noticesKey}, b.version, b.heard)
	if err != nil {
		return "", err
	}
	fields, ok := reply.([]any)
	if !ok || len(fields) != 4 {
		return "", errReply
	}
	stored, list := text(fields[0]), text(fields[1])
	faults := b.takeNoticesLocked(text(fields[2]), text(fields[3]))
	switch {
	case stored == b.version:
		return stored, faults
	case stored != "" && !isVersion(stored):
		return stored, errors.Join(faults, fmt.Errorf("the list of blocks: %w", ErrUnknown))
	case b.version > stored && (stored != "" || b.options.Blocks.Len() > 0):
		return stored, errors.Join(faults, b.restoreLocked(ctx, stored))
	}
	blocks, err := decode(list)
	b.options.Blocks.Use(blocks)
	b.version = stored
	return stored, errors.Join(faults, err)
}

// restoreLocked has Redis know again what this instance knows: it has lost it, by a promotion or since it was restarted.
func (b *Board) restoreLocked(ctx context.Context, stored string) error {
	body, err := encode(b.options.Blocks.Blocks())
	if err != nil {
		return err
	}
	_, err = b.options.Redis.Run(ctx, writeScript, []string{blocksKey}, stored, b.version, "", body, listLife.Milliseconds())
	return err
}

// Block adds a block to the list of all instances, or replaces one of the same bucket. The error is blocklist.ErrFull, blocklist.ErrContended, or why
// Redis did not answer: then the block may still come.
func (b *Board) Block(ctx context.Context, block blocklist.Block) error {
	return b.change(ctx, func(blocks []blocklist.Block) ([]blocklist.Block, bool, error) {
		blocks, err := blocklist.With(blocks, block)
		return blocks, true, err
	})
}

// Unblock takes a block from the list of all instances, and reports whether there was one. Errors are as with Block.
func (b *Board) Unblock(ctx context.Context, key string) (found bool, err error) {
	err = b.change(ctx, func(blocks []blocklist.Block) ([]blocklist.Block, bool, error) {
		blocks, found = blocklist.Without(blocks, key)
		return blocks, found, nil
	})
	return found, err
}

func (b *Board) change(ctx context.Context, edit func([]blocklist.Block) (list []blocklist.Block, changed bool, err error)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range attempts {
		stored, err := b.pollLocked(ctx)
		if err != nil && !errors.Is(err, ErrUnknown) {
			return err
		}
		blocks, changed, err := edit(b.options.Blocks.Blocks())
		if err != nil || !changed {
			return err
		}
		body, err := encode(blocks)
		if err != nil {
			return err
		}
		reply, err := b.options.Redis.Run(ctx, writeScript, []string{blocksKey}, stored, "", b.version, body, listLife.Milliseconds())
		if err != nil {
			return err
		}
		if version := text(reply); version != "" {
			b.options.Blocks.Use(blocks)
			b.version = version
			return nil
		}
	}
	return blocklist.ErrContended
}

// isVersion reports whether instances write such versions.
func isVersion(s string) bool {
	return len(s) == versionSize && strings.Trim(s, "0123456789") == "" && s < "9"
}

// text is a reply that should be a string.
func text(reply any) string {
	s, _ := reply.(string)
	return s
}

var errReply = errors.New("reply of the script: not what was asked for")
