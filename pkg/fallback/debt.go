package fallback

import (
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

const (
	debtStripes  = 64
	defaultDebts = 65_536
)

// debts are what was admitted locally and the store does not know of yet. What finds no room is not owed to anybody: it is counted.
type debts struct {
	most    int
	count   atomic.Int64  // buckets with debts. 0: nobody needs to look
	written atomic.Uint64 // cost that the store was charged …
	unknown atomic.Uint64 // … or may have been: it was sent, and no answer came
	dropped atomic.Uint64 // cost that found no room, or came too late
	closed  atomic.Bool   // nobody pays any more
	stripes [debtStripes]debtStripe
}

// debtStripe has the debts of some buckets. Its lock also keeps others from the local buckets with these identities, from looking whether
// one has to start to charging it.
type debtStripe struct {
	mu   sync.Mutex
	owed map[policy.Identity]*debt
}

// debt is what is owed for one bucket.
type debt struct {
	key       policy.Key
	limits    algorithm.Limits // the whole bucket's
	overdraft float64          // above 0 for reports of usage, which may have gone into debt
	amount    uint64           // admitted, and not given back
	sending   uint64           // the part of it that is on its way to the store …
	done      chan struct{}    // … and is closed when that is over; else nil
	refusals  int

	// What the local bucket had left after its last change, and by which share of the limit.
	share algorithm.Limits
	level float64
	at    int64 // nanoseconds
}

// Debts are what Store missed while it failed, in units of cost.
type Debts struct {
	Buckets int64  // that owe now
	Charged uint64 // to Store afterwards
	Unknown uint64 // sent to Store, and no answer came
	Dropped uint64 // not kept for want of room, refused again and again, or not charged before Close
}

// Debts tells of what Store missed, since New.
func (s *Store) Debts() Debts {
	d := &s.local.debts
	return Debts{Buckets: d.count.Load(), Charged: d.written.Load(), Unknown: d.unknown.Load(), Dropped: d.dropped.Load()}
}

// lock keeps others from the buckets with those identities. It returns what unlock needs.
func (d *debts) lock(ids []policy.Identity) (locked uint64) {
	for _, id := range ids {
		locked |= 1 << (id.A % debtStripes)
	}
	for set := locked; set != 0; set &= set - 1 {
		d.stripes[bits.TrailingZeros64(set)].mu.Lock()
	}
	return locked
}

func (d *debts) unlock(locked uint64) {
	for set := locked; set != 0; set &= set - 1 {
		d.stripes[bits.TrailingZeros64(set)].mu.Unlock()
	}
}

func (d *debts) stripe(id policy.Identity) *debtStripe { return &d.stripes[id.A%debtStripes] }

// addLocked owes the store b's cost, which the bucket mine with its share of the limit was charged. It reports whether that is the
// first debt of all.
func (d *debts) addLocked(id policy.Identity, b, mine *ratelimit.Bucket, level float64, now int64) (first bool) {
	if b.NoReconcile {
		return false
	}
	if d.closed.Load() {
		d.dropped.Add(b.Cost)
		return false
	}
	s := d.stripe(id)
	e := s.owed[id]
	if e == nil {
		most := int64(d.most)
		if n := d.count.Add(1); n > most {
			d.count.Add(-1)
			d.dropped.Add(b.Cost)
			return false
		} else if n == 1 {
			first = true
		}
		if s.owed == nil {
			s.owed = map[policy.Identity]*debt{}
		}
		e = &debt{key: b.Key.Clone()}
		s.owed[id] = e
	}
	e.limits, e.share, e.level, e.at = b.Limits, mine.Limits, level, now
	if b.Op == ratelimit.Force {
		e.overdraft = b.Overdraft
	}
	e.amount += min(b.Cost, math.MaxUint64-e.amount)
	return first
}

// refundLocked owes less. What is not owed, or on its way to the store, is not given back.
func (d *debts) refundLocked(id policy.Identity, cost uint64, level float64, now int64) {
	s := d.stripe(id)
	e := s.owed[id]
	if e == nil {
		return
	}
	e.level, e.at = level, now
	e.amount -= min(cost, e.amount-e.sending)
	if e.amount == 0 {
		d.removeLocked(s, id)
	}
}

// forgiveLocked owes nothing more for a bucket.
func (d *debts) forgiveLocked(id policy.Identity) {
	s := d.stripe(id)
	e := s.owed[id]
	if e == nil {
		return
	}
	if e.amount = e.sending; e.amount == 0 {
		d.removeLocked(s, id)
	}
}

func (d *debts) removeLocked(s *debtStripe, id policy.Identity) {
	delete(s.owed, id)
	d.count.Add(-1)
}

// due is what the store is to be charged now: what was admitted, but no more than the local bucket still misses. The store's
// bucket has been refilled meanwhile like this one, and what ran over its brim must not be charged.
func (e *debt) due(now int64) uint64 {
	if e.share.Capacity == 0 {
		return e.amount
	}
	level, passed := e.level, max(0, now-e.at)/int64(time.Microsecond)
	if e.limits.Kind == algorithm.SlidingLog {
		if passed >= e.share.Window {
			return 0
		}
	} else {
		level += float64(float64(passed) * e.share.Rate)
	}
	missing := math.Ceil(e.share.Capacity - level)
	if missing <= 0 {
		return 0
	}
	if missing >= float64(e.amount) {
		return e.amount
	}
	return uint64(missing)
}

// claim is a debt that its holder has the store charged.
type claim struct {
	id     policy.Identity
	bucket ratelimit.Bucket // what to charge
	debt   *debt
}

// claimLocked takes on a debt. mine: the caller has to pay it, and then to call settle. Else, if wait is not nil, somebody else is
// paying, and closes wait when that is over. Neither: nothing is owed any more.
func (d *debts) claimLocked(s *debtStripe, id policy.Identity, e *debt, now int64) (c claim, mine bool, wait <-chan struct{}) {
	if e.done != nil {
		return c, false, e.done
	}
	cost := e.due(now)
	if cost == 0 {
		d.removeLocked(s, id)
		return c, false, nil
	}
	e.amount, e.sending, e.done = cost, cost, make(chan struct{})
	return claim{id: id, debt: e, bucket: e.bucket(ratelimit.Force, cost)}, true, nil
}

// bucket is the one of the store.
func (e *debt) bucket(op ratelimit.Op, cost uint64) ratelimit.Bucket {
	return ratelimit.Bucket{Key: e.key, Limits: e.limits, Overdraft: e.overdraft, Cost: cost, Op: op, OnFailure: policy.Local}
}

// outcome is what became of a charge.
type outcome uint8

const (
	notRun  outcome = iota + 1
	refused         // for what the bucket is, and not because the store fails
	ran
	mayHaveRun // never tried again
)

// mostRefusals is how often a debt is refused before it is given up: it would be tried for ever.
const mostRefusals = 5

// settle ends a claim.
func (d *debts) settle(c *claim, o outcome) {
	s := d.stripe(c.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := c.debt
	close(e.done)
	switch o {
	case ran:
		d.written.Add(e.sending)
	case mayHaveRun:
		d.unknown.Add(e.sending)
	default:
		if o == refused {
			e.refusals++
		}
		if e.refusals < mostRefusals && !d.closed.Load() {
			e.sending, e.done = 0, nil
			return
		}
		d.dropped.Add(e.sending)
	}
	e.amount -= e.sending
	e.sending, e.done, e.refusals = 0, nil, 0
	if e.amount == 0 {
		d.removeLocked(s, c.id)
	}
}
