package ratelimit

import (
	"context"
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// remainders are costs that commits found no room for while other reservations, open at that moment, held more than they came to need. When
// those give back, the remainders are charged after all, so that it does not matter in which order a crowd of reservations is settled.
//
// They are known to this process only, and lost with it: the client then keeps what it was not charged.
type remainders struct {
	hasher policy.Hasher
	parts  [remainderParts]remainderPart
}

const (
	remainderParts = 16
	// mostRemainders is for how many buckets a part remembers them. Where there is no room for more, they stay uncharged.
	mostRemainders = 256
	// longestOpen is how long a remainder may wait for reservations when others need its room.
	longestOpen = 10 * time.Minute
	// mostTries is how often a cost is charged again, since something was given back meanwhile.
	mostTries = 8
)

type remainderPart struct {
	returned atomic.Uint64 // how often something was given back to a bucket of this part; changes under mu

	mu   sync.Mutex
	owed map[policy.Identity]remainder
}

type remainder struct {
	cost uint64
	at   time.Duration // by the limiter's clock: when the last of it found no room: reservations that began later have nothing to do with it
}

func newRemainders() remainders { return remainders{hasher: policy.NewHasher()} }

func (r *remainders) find(key policy.Key) (*remainderPart, policy.Identity) {
	id := r.hasher.Identify(key.Bytes())
	return &r.parts[id.A%remainderParts], id
}

// note remembers a cost that found no room. seen is what returned was before the store was asked: if something was given back since, there may be
// room by now, and nobody else who would know of the cost. Then it is not remembered, and note reports false.
func (p *remainderPart) note(id policy.Identity, cost, seen uint64, now time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.returned.Load() != seen {
		return false
	}
	owed, known := p.owed[id]
	if !known && !p.roomLocked(now) {
		return true
	}
	p.owed[id] = remainder{owed.cost + min(cost, math.MaxUint64-owed.cost), now}
	return true
}

// roomLocked reports whether one more bucket can be remembered.
func (p *remainderPart) roomLocked(now time.Duration) bool {
	if p.owed == nil {
		p.owed = map[policy.Identity]remainder{}
	}
	if len(p.owed) >= mostRemainders {
		maps.DeleteFunc(p.owed, func(_ policy.Identity, r remainder) bool { return now-r.at > longestOpen })
	}
	return len(p.owed) < mostRemainders
}

// claim takes note of a give-back, and says how much of it goes to a remainder: none if the reservation began after that.
func (p *remainderPart) claim(id policy.Identity, back uint64, began time.Duration) (cost, seen uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen = p.returned.Add(1)
	owed, known := p.owed[id]
	if !known || began > owed.at {
		return 0, seen
	}
	cost = min(back, owed.cost)
	if owed.cost -= cost; owed.cost == 0 {
		delete(p.owed, id)
	} else {
		p.owed[id] = owed
	}
	return cost, seen
}

// balance has the store decide on a commit of a reservation that began at began. What finds no room is remembered, and what is given back
// goes to what is remembered first.
func (c *Call) balance(ctx context.Context, began time.Duration) {
	var room [8]uint64
	seen := room[:0]
	for i := range c.buckets {
		var n uint64
		if b := &c.buckets[i]; b.Op == Force {
			part, _ := c.limiter.remainders.find(b.Key)
			n = part.returned.Load()
		}
		seen = append(seen, n)
	}
	c.ask(ctx)
	for i := range c.buckets {
		b, check := &c.buckets[i], &c.decision.Checks[c.places[i]]
		switch {
		case !check.Known:
		case b.Op == Force:
			c.leave(ctx, i, check.Result.Uncharged, seen[i])
		default:
			c.makeUp(ctx, i, began)
		}
	}
}

// makeUp charges a remainder of the i-th bucket, to which something was given back.
func (c *Call) makeUp(ctx context.Context, i int, began time.Duration) {
	b, check := &c.buckets[i], &c.decision.Checks[c.places[i]]
	part, id := c.limiter.remainders.find(b.Key)
	owed, seen := part.claim(id, b.Cost, began)
	if owed == 0 {
		return
	}
	charged, left := c.force(ctx, i, owed)
	check.MadeUp = charged + c.leave(ctx, i, left, seen)
	check.Result.Uncharged = 0 // it is others'
}

// leave remembers what found no room in the i-th bucket, after having tried again if there may be some by now: how much of it was charged then.
func (c *Call) leave(ctx context.Context, i int, left, seen uint64) (charged uint64) {
	if left == 0 {
		return 0
	}
	part, id := c.limiter.remainders.find(c.buckets[i].Key)
	for range mostTries {
		if left == 0 || part.note(id, left, seen, c.limiter.now()) {
			break
		}
		seen = part.returned.Load()
		var more uint64
		more, left = c.force(ctx, i, left)
		charged += more
	}
	return charged
}

// force charges cost to the i-th bucket, whose check then says how it stands. left is what found no room. If the store fails, neither is known,
// and nothing is left, lest it be charged twice.
func (c *Call) force(ctx context.Context, i int, cost uint64) (charged, left uint64) {
	b := c.buckets[i]
	b.Op, b.Cost = Force, cost
	r := c.limiter.store.Acquire(ctx, []Bucket{b}, nil)[0]
	if r.Err != nil || !r.counted() {
		return 0, 0
	}
	c.decision.Checks[c.places[i]].Result = r
	return cost - r.Uncharged, r.Uncharged
}
