package ratelimit

import (
	"math/bits"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Request is one request to be decided: its attributes, in groups, and what it costs. It is not safe for concurrent use.
type Request struct {
	limiter    *Limiter
	attributes policy.Attributes

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

func (r *Request) reset(view *policy.View) {
	r.attributes.Reset(view)
	r.cost, r.costStated, r.ownCost, r.refund = 1, false, 0, 0
	r.buckets, r.places = r.buckets[:0], r.places[:0]
	r.decision = Decision{
		Allowed: true, DomainKnown: view.Known(), Set: view.Set(),
		Checks: r.decision.Checks[:0], Skipped: r.decision.Skipped[:0],
	}
}

// Release gives the request back for reuse. Nothing that came from it may be used afterwards.
func (r *Request) Release() { r.limiter.requests.Put(r) }

// Add notes a fact about the request: an entry's key, which the policy files' attributes tables turn into an attribute,
// and its value. Groups count from 0 to policy.MaxGroups-1: facts that belong together, such as those of one Envoy
// descriptor. Neither slice may change before the request is released. It reports whether any policy has a use for the key.
// A group beyond the last makes the request partial.
func (r *Request) Add(group int, entry, value []byte) bool {
	if uint(group) >= policy.MaxGroups {
		r.SetPartial()
		return false
	}
	return r.attributes.Add(group, entry, value)
}

// SetCost says what the request costs under every policy. Not called: 1.
func (r *Request) SetCost(n uint64) { r.cost, r.costStated = n, true }

// SetGroupCost says what the request costs under the policies that use a fact of this group. 0 only looks; refund gives
// n back instead of spending it.
func (r *Request) SetGroupCost(group int, n uint64, refund bool) {
	if uint(group) >= policy.MaxGroups {
		r.SetPartial()
		return
	}
	bit := uint64(1) << group
	r.ownCost |= bit
	r.groupCost[group] = n
	if refund {
		r.refund |= bit
	}
}

// SetPartial says that the request has more facts than were added. Its policies are then answered for by their
// onStoreFailure: closed denies, the others admit, nothing is charged.
func (r *Request) SetPartial() { r.attributes.Partial = true }

// plan turns hits into checks and buckets. final reports that the request is denied whatever the store says.
func (r *Request) plan() (final bool) {
	d := &r.decision
	for i := range r.hits {
		hit := &r.hits[i]
		d.Used |= hit.Groups | hit.Tagging
		c := Check{Policy: hit.Policy, Numbers: hit.Numbers, Groups: hit.Groups}
		c.Op, c.Cost = r.charge(hit)
		switch {
		case r.attributes.Partial:
			c.Result = unanswered(hit.Policy)
		case hit.Missing != "" && hit.Policy.OnMissingKey == policy.SkipPolicy:
			d.Skipped = append(d.Skipped, Skip{hit.Policy, hit.Missing})
			continue
		case hit.Missing != "":
			c.Missing = hit.Missing
			c.Result = Result{Outcome: Denied, Source: FromMissingKey}
		case (c.Op == Take || c.Op == Peek) && float64(c.Cost) > hit.Numbers.Capacity:
			c.Result = Result{Outcome: Denied, Source: FromNever}
		default:
			r.addBucket(hit, &c)
		}
		final = final || c.Denied() && !c.Shadow()
		d.Checks = append(d.Checks, c)
	}
	return final
}

func (r *Request) addBucket(hit *policy.Hit, c *Check) {
	r.places = append(r.places, len(r.decision.Checks))
	r.buckets = append(r.buckets, Bucket{
		Key: hit.Key, Limits: hit.Numbers.Limits, Overdraft: hit.Numbers.Overdraft, Cost: c.Cost, Op: c.Op,
		Shadow: hit.Policy.Mode == policy.Shadow, OnFailure: hit.Policy.OnStoreFailure,
	})
}

// charge says what the request does to a hit's bucket.
func (r *Request) charge(hit *policy.Hit) (Op, uint64) {
	op, n, stated := Take, r.cost, r.costStated
	if own := hit.Groups & r.ownCost; own != 0 {
		ownOp, ownN := r.groupCharge(own)
		// A group without a cost of its own counts as the request does: beside it none only looks or gives back.
		if others := hit.Groups &^ own; others == 0 || ownOp == Take && ownN > 0 {
			op, n, stated = ownOp, ownN, true
		}
	}
	if n == 0 {
		return Peek, 1
	}
	if op == Take && hit.Policy.Charge == policy.Postpaid {
		if !stated {
			return Peek, 1
		}
		return Force, n
	}
	return op, n
}

// groupCharge joins what several groups say: a refund only if all give back, else the largest cost of those that do not.
func (r *Request) groupCharge(groups uint64) (Op, uint64) {
	op, counted := Take, groups&^r.refund
	if counted == 0 {
		op, counted = Refund, groups
	}
	var n uint64
	for ; counted != 0; counted &= counted - 1 {
		n = max(n, r.groupCost[bits.TrailingZeros64(counted)])
	}
	return op, n
}

// dropTakes leaves only those buckets that are to be carried out whatever the decision.
func (r *Request) dropTakes() {
	n := 0
	for i := range r.buckets {
		if !r.buckets[i].Op.Deniable() {
			r.buckets[n], r.places[n] = r.buckets[i], r.places[i]
			n++
		}
	}
	r.buckets, r.places = r.buckets[:n], r.places[:n]
}

// collect puts the store's results into the checks.
func (r *Request) collect() {
	for i, place := range r.places {
		c := &r.decision.Checks[place]
		c.Result = r.results[i]
		if err := c.Result.Err; err != nil {
			c.Result = unanswered(c.Policy)
			if !c.Op.Deniable() {
				c.Result = Result{Outcome: Admitted, Source: FromOpen}
			}
			c.Result.Err = err
		}
		c.Known = c.Result.counted()
	}
}

// counted reports whether the result tells of a bucket's state.
func (r *Result) counted() bool {
	return r.Outcome != 0 && (r.Source == FromStore || r.Source == FromCache || r.Source == FromLocal)
}

// unanswered is what a policy says when its bucket could not be asked.
func unanswered(p *policy.Policy) Result {
	if p.OnStoreFailure == policy.Closed {
		return Result{Outcome: Denied, Source: FromClosed}
	}
	return Result{Outcome: Admitted, Source: FromOpen}
}
