// Package blocklist stands in front of a store and denies what somebody has blocked: one bucket, that is one key under one policy, until
// a given time. A blocked bucket is not asked, and what else the request has buckets for is not charged.
//
// It only knows the list. Where it comes from, and how instances agree on it, is its owner's business: see [Store.Use].
package blocklist

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Most is how many blocks there can be at a time.
const Most = 10_000

var (
	// ErrFull is the error of a block for which there is no room.
	ErrFull = errors.New("there are 10000 blocks already")
	// ErrContended is the error of a change of a list that many share, while others change it again and again.
	ErrContended = errors.New("others change the list of blocks at the same time")
)

// Block denies one bucket.
type Block struct {
	PolicyID string
	Key      string // of the bucket: the bytes of its policy.Key
	Since    time.Time
	Until    time.Time // from this instant on it denies no more
	Reason   string
	Actor    string // who has blocked
}

// Store is a [ratelimit.Store] that denies blocked buckets and asks another one about the rest. While nothing is blocked, that costs a
// call one atomic load. It is safe for concurrent use.
type Store struct {
	store ratelimit.Store
	trips sync.Pool             // of *trip
	table atomic.Pointer[table] // nil: nothing is blocked

	mu sync.Mutex // held by who changes the table
}

var _ ratelimit.Store = (*Store)(nil)

// table never changes.
type table struct {
	blocks []Block // by key
	until  map[string]time.Time
	last   time.Time // when all of them are over
}

// New makes a Store with an empty list in front of another one.
func New(store ratelimit.Store) *Store {
	s := &Store{store: store}
	s.trips.New = func() any { return new(trip) }
	return s
}

// Use makes blocks the whole list. What is over is left out; of two blocks of one bucket the later one counts, and of more than Most those
// that end last.
func (s *Store) Use(blocks []Block) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.useLocked(blocks, time.Now())
}

func (s *Store) useLocked(blocks []Block, now time.Time) {
	byKey := make(map[string]Block, len(blocks))
	for _, b := range blocks {
		if b.Until.After(now) {
			byKey[b.Key] = b
		}
	}
	if len(byKey) == 0 {
		s.table.Store(nil)
		return
	}
	t := &table{until: make(map[string]time.Time, len(byKey))}
	for _, b := range byKey {
		t.blocks = append(t.blocks, b)
	}
	slices.SortFunc(t.blocks, func(a, b Block) int { return cmp.Or(b.Until.Compare(a.Until), cmp.Compare(a.Key, b.Key)) })
	t.blocks = t.blocks[:min(len(t.blocks), Most)]
	t.last = t.blocks[0].Until
	for _, b := range t.blocks {
		t.until[b.Key] = b.Until
	}
	slices.SortFunc(t.blocks, func(a, b Block) int { return cmp.Compare(a.Key, b.Key) })
	s.table.Store(t)
}

// Add blocks one more bucket, or one that is blocked in another way. The error is ErrFull.
func (s *Store) Add(b Block) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	blocks, err := With(s.Blocks(), b)
	if err != nil {
		return err
	}
	s.useLocked(blocks, time.Now())
	return nil
}

// Remove ends a block, and reports whether there was one.
func (s *Store) Remove(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	blocks, found := Without(s.Blocks(), key)
	if found {
		s.useLocked(blocks, time.Now())
	}
	return found
}

// With is a list with one more block, in place of any of the same bucket. The error is ErrFull.
func With(blocks []Block, b Block) ([]Block, error) {
	blocks, _ = Without(blocks, b.Key)
	if len(blocks) >= Most {
		return nil, ErrFull
	}
	return append(blocks, b), nil
}

// Without is a list without the block of one bucket, and whether there was one.
func Without(blocks []Block, key string) ([]Block, bool) {
	rest := slices.DeleteFunc(slices.Clone(blocks), func(b Block) bool { return b.Key == key })
	return rest, len(rest) < len(blocks)
}

// Blocks are those that are not over, by key.
func (s *Store) Blocks() []Block {
	t := s.table.Load()
	if t == nil {
		return nil
	}
	now := time.Now()
	return slices.DeleteFunc(slices.Clone(t.blocks), func(b Block) bool { return !b.Until.After(now) })
}

// Len is how many blocks there are that are not over.
func (s *Store) Len() (n int) {
	t := s.table.Load()
	if t == nil {
		return 0
	}
	now := time.Now()
	for i := range t.blocks {
		if t.blocks[i].Until.After(now) {
			n++
		}
	}
	return n
}

// Find is the block of a bucket, if there is one.
func (s *Store) Find(key []byte) (Block, bool) {
	t := s.table.Load()
	if t == nil || t.left(key, time.Now()) <= 0 {
		return Block{}, false
	}
	i, _ := slices.BinarySearchFunc(t.blocks, string(key), func(b Block, key string) int { return cmp.Compare(b.Key, key) })
	return t.blocks[i], true
}

// left is for how long a bucket is blocked yet.
func (t *table) left(key []byte, now time.Time) time.Duration {
	if until, ok := t.until[string(key)]; ok {
		return until.Sub(now)
	}
	return 0
}
