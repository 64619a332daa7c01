package ratelimit

import (
	"context"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Call is a request under way on the fast path: it comes from a pool, and what it hands out lives until [Call.Release], so that
// a decision allocates nothing. It also knows attributes in groups, each with a cost of its own, as Envoy's descriptors have them.
// Who has no need of either uses [Limiter.Check]. A Call is not safe for concurrent use.
type Call struct {
	limiter    *Limiter
	attributes policy.Attributes
	text       []byte // values given to AddString

	intent     intent
	cost       uint64
	costStated bool
	ownCost    uint64 // the groups that have a cost of their own …
	refund     uint64 // … and those for which it is given back
	groupCost  [policy.MaxGroups]uint64

	hits     []policy.Hit
	buckets  []Bucket
	places   []int // the check that each bucket belongs to
	results  []Result
	decision Decision
}

// Begin starts a call in domain, under the set in force now. The caller must Release it.
func (l *Limiter) Begin(domain []byte) *Call {
	c := l.calls.Get().(*Call)
	c.reset(l.set.Load().View(domain))
	return c
}

func (c *Call) reset(view *policy.View) {
	c.attributes.Reset(view)
	c.text = c.text[:0]
	c.cost, c.costStated, c.ownCost, c.refund = 1, false, 0, 0
	c.buckets, c.places = c.buckets[:0], c.places[:0]
	c.decision = Decision{
		Allowed: true, DomainKnown: view.Known(), Set: view.Set(),
		Checks: c.decision.Checks[:0], Skipped: c.decision.Skipped[:0],
	}
}

// maxKeptText is how many bytes of values one call leaves to the next.
const maxKeptText = 16 << 10

// Release gives the call back for reuse. Nothing that came from it may be used afterwards.
func (c *Call) Release() {
	if cap(c.text) > maxKeptText {
		c.text = nil
	}
	c.limiter.calls.Put(c)
}

// Add notes a fact about the request: an entry's key, which the policy files' attributes tables turn into an attribute,
// and its value. Groups count from 0 to policy.MaxGroups-1: facts that belong together, such as those of one Envoy
// descriptor; who has no groups gives 0. Neither slice may change before the call is released. It reports whether any policy has
// a use for the key. A group beyond the last makes the call partial.
func (c *Call) Add(group int, entry, value []byte) bool {
	if uint(group) >= policy.MaxGroups {
		c.SetPartial()
		return false
	}
	return c.attributes.Add(group, entry, value)
}

// AddString is Add for strings.
func (c *Call) AddString(group int, entry, value string) bool {
	start := len(c.text)
	c.text = append(c.text, value...)
	return c.Add(group, []byte(entry), c.text[start:])
}

// SetCost says what the request costs under every policy. Not called: 1.
func (c *Call) SetCost(n uint64) { c.cost, c.costStated = n, true }

// SetGroupCost says what the request costs under the policies that use a fact of this group. 0 only looks; refund gives
// n back instead of spending it.
func (c *Call) SetGroupCost(group int, n uint64, refund bool) {
	if uint(group) >= policy.MaxGroups {
		c.SetPartial()
		return
	}
	bit := uint64(1) << group
	c.ownCost |= bit
	c.groupCost[group] = n
	if refund {
		c.refund |= bit
	}
}

// SetPartial says that the request has more facts than were added. Its policies are then answered for by their
// onStoreFailure: closed denies, the others admit, nothing is charged.
func (c *Call) SetPartial() { c.attributes.Partial = true }

// Check decides, as [Limiter.Check] does. A call is decided once; the decision is valid until the call is released.
func (c *Call) Check(ctx context.Context) *Decision { return c.decide(ctx, spend) }

// Peek is Check without charging anything, as [Limiter.Peek] is.
func (c *Call) Peek(ctx context.Context) *Decision { return c.decide(ctx, look) }

// Refund gives back, as [Limiter.Refund] does.
func (c *Call) Refund(ctx context.Context) *Decision { return c.decide(ctx, giveBack) }

// Hits are the policies that the decided call found to apply, with their keys: one for each of the decision's Checks and Skipped, in file order.
// Valid until the call is released.
func (c *Call) Hits() []policy.Hit { return c.hits }

func (c *Call) decide(ctx context.Context, i intent) *Decision {
	began := c.limiter.now()
	c.match(i)
	c.ask(ctx)
	return c.conclude(began)
}

// match finds the policies that apply, and what each is asked.
func (c *Call) match(i intent) {
	c.intent = i
	c.hits = c.attributes.Match(c.hits[:0])
	if final := c.plan(); final { // what remains is carried out whatever the decision
		c.keep(func(b *Bucket) bool { return !b.Op.Deniable() })
	}
}

// ask has the store decide on what was planned.
func (c *Call) ask(ctx context.Context) {
	if len(c.buckets) > 0 {
		c.results = c.limiter.store.Acquire(ctx, c.buckets, c.results[:0])
		c.collect()
	}
}

func (c *Call) conclude(began time.Duration) *Decision {
	d := &c.decision
	for i := range d.Checks {
		if check := &d.Checks[i]; check.Denied() && !check.Shadow() {
			d.Allowed = false
		}
	}
	d.InvalidIPs, d.Hits = c.attributes.InvalidIPs, c.hits
	d.Took = c.limiter.now() - began
	c.limiter.onDecision(d)
	return d
}
