package idempotency

import (
	"cmp"
	"context"
	"sync"
	"time"
)

const (
	// DefaultMaxEntries is how many entries a Memory holds if its options do not say.
	DefaultMaxEntries = 100_000
	// DefaultMaxBytes is how many bytes a Memory holds if its options do not say.
	DefaultMaxBytes = 64 << 20
	// entryBytes is about what an entry takes besides its answer.
	entryBytes = 256
	// sweepMost is how many entries that are over a claim removes in passing.
	sweepMost = 16
)

// MemoryOptions are the bounds of a Memory. The zero value is ready for use.
type MemoryOptions struct {
	// MaxEntries is how many entries there may be; 0: DefaultMaxEntries.
	MaxEntries int
	// MaxBytes is how many bytes entries and answers may take; 0: DefaultMaxBytes.
	MaxBytes int64
	// OnEvict, if set, is told how many answers went before their time to make room: a retry of those requests is carried out again.
	OnEvict func(n int)
}

// Memory is a Store in the process: for services with one instance, and for tests. When it is full, the answer that would go next goes first;
// entries of running requests never do, so that if nothing else is left, claims fail with [ErrFull]. It starts no goroutine:
// what is over is removed in passing.
type Memory struct {
	options MemoryOptions

	mu      sync.Mutex // guards what follows
	entries map[Key]*entry
	running queue // by the end of their leases
	answers queue // by the end of their time
	bytes   int64
	evicted int // in the step that is under way
}

// NewMemory makes an empty store.
func NewMemory(o MemoryOptions) *Memory {
	o.MaxEntries = cmp.Or(max(o.MaxEntries, 0), DefaultMaxEntries)
	o.MaxBytes = cmp.Or(max(o.MaxBytes, 0), DefaultMaxBytes)
	return &Memory{options: o, entries: map[Key]*entry{}}
}

// Claim implements Store.
func (m *Memory) Claim(ctx context.Context, c Claim) (found Found, err error) {
	err = m.step(ctx, c.Key, func(e *entry, now time.Time) error {
		m.sweepLocked(now)
		switch {
		case e == nil:
			found.State = Claimed
			return m.takeLocked(c, now)
		case e.claim.Fingerprint != c.Fingerprint:
			found.State = Mismatch
		case e.completed:
			found = Found{State: Completed, Free: e.free > 0, Data: e.data}
			e.free = max(e.free-1, 0)
		case e.claim.Token != c.Token:
			found.State = Running
		default:
			found.State = Claimed
			m.running.move(e, now.Add(c.Lease))
		}
		return nil
	})
	if err != nil {
		return Found{}, err
	}
	return found, nil
}

// Renew implements Store.
func (m *Memory) Renew(ctx context.Context, c Claim) error {
	return m.step(ctx, c.Key, func(e *entry, now time.Time) error {
		switch {
		case e == nil:
			return m.takeLocked(c, now)
		case e.completed || e.claim.Token != c.Token:
			return ErrLost
		}
		m.running.move(e, now.Add(c.Lease))
		return nil
	})
}

// Complete implements Store.
func (m *Memory) Complete(ctx context.Context, c Claim, a Answer) error {
	return m.step(ctx, c.Key, func(e *entry, now time.Time) error {
		switch {
		case e != nil && e.claim.Token != c.Token:
			return ErrLost
		case e != nil && e.completed:
			return nil
		case e != nil:
			m.removeLocked(e)
		}
		if !m.makeRoomLocked(entryBytes+int64(len(a.Data)), now) {
			if e != nil {
				m.addLocked(e) // still taken until its lease is over
			}
			return ErrFull
		}
		data := append([]byte(nil), a.Data...)
		m.addLocked(&entry{claim: c, completed: true, data: data, free: a.Free, until: now.Add(a.TTL)})
		return nil
	})
}

// Release implements Store.
func (m *Memory) Release(ctx context.Context, c Claim) error {
	return m.step(ctx, c.Key, func(e *entry, _ time.Time) error {
		if e != nil && !e.completed && e.claim.Token == c.Token {
			m.removeLocked(e)
		}
		return nil
	})
}

// step has do, under the lock, do something with the entry of a key, which is nil if there is none or it is over. It tells what was evicted without
// the lock.
func (m *Memory) step(ctx context.Context, k Key, do func(e *entry, now time.Time) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	now := time.Now()
	err := do(m.findLocked(k, now), now)
	evicted := m.evicted
	m.evicted = 0
	m.mu.Unlock()
	if evicted > 0 && m.options.OnEvict != nil {
		m.options.OnEvict(evicted)
	}
	return err
}

// takeLocked makes an entry for a run.
func (m *Memory) takeLocked(c Claim, now time.Time) error {
	if !m.makeRoomLocked(entryBytes, now) {
		return ErrFull
	}
	m.addLocked(&entry{claim: c, until: now.Add(c.Lease)})
	return nil
}

// findLocked finds the entry of a key, unless it is over.
func (m *Memory) findLocked(k Key, now time.Time) *entry {
	e := m.entries[k]
	if e != nil && !e.until.After(now) {
		m.removeLocked(e)
		return nil
	}
	return e
}

// sweepLocked removes some of the entries that are over.
func (m *Memory) sweepLocked(now time.Time) {
	for range sweepMost {
		if !m.expireLocked(&m.answers, now) && !m.expireLocked(&m.running, now) {
			return
		}
	}
}

// expireLocked removes the first of a queue, if it is over.
func (m *Memory) expireLocked(q *queue, now time.Time) bool {
	e := q.first()
	if e == nil || e.until.After(now) {
		return false
	}
	m.removeLocked(e)
	return true
}

// makeRoomLocked reports whether there is room for one more entry, after what is over, and then as many answers as need be, have gone.
func (m *Memory) makeRoomLocked(bytes int64, now time.Time) bool {
	if bytes > m.options.MaxBytes {
		return false
	}
	for len(m.entries) >= m.options.MaxEntries || m.bytes+bytes > m.options.MaxBytes {
		if m.expireLocked(&m.running, now) || m.expireLocked(&m.answers, now) {
			continue
		}
		e := m.answers.first()
		if e == nil {
			return false
		}
		m.removeLocked(e)
		m.evicted++
	}
	return true
}

func (m *Memory) addLocked(e *entry) {
	m.entries[e.claim.Key] = e
	m.bytes += e.bytes()
	m.queueOf(e).add(e)
}

func (m *Memory) removeLocked(e *entry) {
	delete(m.entries, e.claim.Key)
	m.bytes -= e.bytes()
	m.queueOf(e).remove(e)
}

func (m *Memory) queueOf(e *entry) *queue {
	if e.completed {
		return &m.answers
	}
	return &m.running
}

// Len is how many entries there are, with those that are over and were not removed yet.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.entries)
}
