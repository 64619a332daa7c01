package fallback

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	lookEvery   = time.Second // for breakers that are of no use any more
	keepWorking = time.Second // the breaker of a shard that works again: the late failures of old calls are known by it
	keepFailing = time.Minute // that of one that has failed, but not often enough to open
)

// shards are the breakers of those shards that have failed lately.
type shards struct {
	shardOf func(key []byte) string
	tell    func(Transition)
	began   time.Time
	looked  atomic.Int64 // when breakers of no use were looked for, since began

	mu sync.Mutex // for whoever changes the table
	// table is never changed, but replaced. Nil: no shard is in trouble.
	table atomic.Pointer[map[string]*breaker]
}

func newShards(o *Options) shards {
	return shards{shardOf: o.Shard, tell: o.OnTransition, began: time.Now()}
}

// untroubled reports that no shard has failed lately.
func (s *shards) untroubled() bool { return s.table.Load() == nil }

func (s *shards) now() time.Duration { return time.Since(s.began) }

// find is nil for a shard that has not failed lately.
func (s *shards) find(shard string) *breaker {
	if t := s.table.Load(); t != nil {
		return (*t)[shard]
	}
	return nil
}

// findOrAdd gives each shard a breaker.
func (s *shards) findOrAdd(shard string) *breaker {
	if b := s.find(shard); b != nil {
		return b
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.find(shard); b != nil {
		return b
	}
	b := newBreaker(strings.Clone(shard), s.tell)
	next := map[string]*breaker{}
	if t := s.table.Load(); t != nil {
		next = maps.Clone(*t)
	}
	next[b.shard] = b
	s.table.Store(&next)
	return b
}

// heard notes that the shard of a bucket has answered, too late for the call.
func (s *shards) heard(key []byte) {
	if s.untroubled() {
		return
	}
	if b := s.find(s.shardOf(key)); b != nil {
		b.heard(s.now())
	}
}

// tidy drops breakers of no use, now and again.
func (s *shards) tidy(now time.Duration) {
	last := s.looked.Load()
	if now-time.Duration(last) < lookEvery || !s.looked.CompareAndSwap(last, int64(now)) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.table.Load()
	if t == nil {
		return
	}
	next := map[string]*breaker{}
	for shard, b := range *t {
		if !s.useless(b, now) {
			next[shard] = b
		}
	}
	switch len(next) {
	case len(*t):
	case 0:
		s.table.Store(nil)
	default:
		s.table.Store(&next)
	}
}

// useless reports whether a breaker is not needed any more, and drops it then.
func (s *shards) useless(b *breaker, now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	idle, useless := now-b.touched, false
	switch {
	case b.state == StateHalfOpen: // who has sent the probe will tell
	case b.state == StateOpen:
		useless = s.shardOf(b.witness) != b.shard
	case b.fails == 0:
		useless = idle >= keepWorking
	default:
		useless = idle >= keepFailing
	}
	if useless {
		b.dropLocked(now)
	}
	return useless
}

// ShardStatus tells of a shard that has failed lately.
type ShardStatus struct {
	Shard string
	State State
	// Since is when it was last known to work, or when it began to work again.
	Since time.Time
	// Reason is that of the last failure.
	Reason string
	// Next is when a call is let through to see whether the shard is back. Zero: calls go there, or one is on its way.
	Next time.Time
}

// Shards are those that have failed lately, by name. All others work.
func (s *Store) Shards() []ShardStatus {
	s.shards.tidy(s.shards.now())
	t := s.shards.table.Load()
	if t == nil {
		return nil
	}
	all := make([]ShardStatus, 0, len(*t))
	for _, b := range *t {
		all = append(all, b.status(s.shards.began))
	}
	slices.SortFunc(all, func(a, b ShardStatus) int { return strings.Compare(a.Shard, b.Shard) })
	return all
}

func (b *breaker) status(began time.Time) ShardStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	st := ShardStatus{Shard: b.shard, State: b.state, Since: began.Add(b.since), Reason: b.reason}
	if b.state == StateOpen {
		st.Next = began.Add(time.Duration(b.until.Load()))
	}
	return st
}
