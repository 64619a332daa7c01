package ratelimit

import (
	"math/bits"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// intent is what a caller wants done with the buckets of its request.
type intent uint8

const (
	spend    intent = iota + 1 // charge, as the policies say
	look                       // tell what spend would be answered
	giveBack                   // return what was charged
	hold                       // charge at once, whatever the policies say
)

// plan turns hits into checks and buckets. final reports that the request is denied whatever the store says.
func (c *Call) plan() (final bool) {
	d := &c.decision
	for i := range c.hits {
		hit := &c.hits[i]
		d.Used |= hit.Groups | hit.Tagging
		check := Check{Policy: hit.Policy, Numbers: hit.Numbers, Groups: hit.Groups}
		check.Op, check.Cost = c.charge(hit)
		switch {
		case c.attributes.Partial:
			check.Result = unanswered(hit.Policy)
		case hit.Missing != "" && hit.Policy.OnMissingKey == policy.SkipPolicy:
			d.Skipped = append(d.Skipped, Skip{hit.Policy, hit.Missing})
			continue
		case hit.Missing != "":
			check.Missing = hit.Missing
			check.Result = Result{Outcome: Denied, Source: FromMissingKey}
		case check.Op.Deniable() && float64(check.Cost) > hit.Numbers.Capacity:
			check.Result = Result{Outcome: Denied, Source: FromNever}
		default:
			c.addBucket(hit, &check)
		}
		final = final || check.Denied() && !check.Shadow()
		d.Checks = append(d.Checks, check)
	}
	return final
}

func (c *Call) addBucket(hit *policy.Hit, check *Check) {
	c.places = append(c.places, len(c.decision.Checks))
	c.buckets = append(c.buckets, Bucket{
		Key: hit.Key, Limits: hit.Numbers.Limits, Overdraft: hit.Numbers.Overdraft, Cost: check.Cost, Op: check.Op,
		Shadow: hit.Policy.Mode == policy.Shadow, OnFailure: hit.Policy.OnStoreFailure, NoReconcile: hit.Policy.NoReconcile,
	})
}

// charge says what the request does to a hit's bucket.
func (c *Call) charge(hit *policy.Hit) (Op, uint64) {
	op, n, stated := c.stated(hit)
	postpaid := hit.Policy.Charge == policy.Postpaid
	switch {
	case n == 0:
		return Peek, 1
	case c.intent == look && op == Take && !postpaid:
		return Peek, n
	case c.intent == look:
		return Peek, 1
	case c.intent == giveBack:
		return Refund, n
	case c.intent == hold || op == Refund || !postpaid:
		return op, n
	case stated:
		return Force, n
	}
	return Peek, 1
}

// stated is the cost of a hit as the caller says it: to be taken or given back. stated is false where nothing was said.
func (c *Call) stated(hit *policy.Hit) (op Op, n uint64, stated bool) {
	op, n, stated = Take, c.cost, c.costStated
	if own := hit.Groups & c.ownCost; own != 0 {
		ownOp, ownN := c.groupCharge(own)
		// A group without a cost of its own counts as the request does: beside it none only looks or gives back.
		if others := hit.Groups &^ own; others == 0 || ownOp == Take && ownN > 0 {
			op, n, stated = ownOp, ownN, true
		}
	}
	return op, n, stated
}

// groupCharge joins what several groups say: a refund only if all give back, else the largest cost of those that do not.
func (c *Call) groupCharge(groups uint64) (Op, uint64) {
	op, counted := Take, groups&^c.refund
	if counted == 0 {
		op, counted = Refund, groups
	}
	var n uint64
	for ; counted != 0; counted &= counted - 1 {
		n = max(n, c.groupCost[bits.TrailingZeros64(counted)])
	}
	return op, n
}

// keep leaves only those buckets for the store that pass.
func (c *Call) keep(pass func(*Bucket) bool) {
	n := 0
	for i := range c.buckets {
		if pass(&c.buckets[i]) {
			c.buckets[n], c.places[n] = c.buckets[i], c.places[i]
			n++
		}
	}
	c.buckets, c.places = c.buckets[:n], c.places[:n]
}

// collect puts the store's results into the checks.
func (c *Call) collect() {
	for i, place := range c.places {
		check := &c.decision.Checks[place]
		check.Result = c.results[i]
		if err := check.Result.Err; err != nil {
			check.Result = unanswered(check.Policy)
			if !check.Op.Deniable() {
				check.Result = Result{Outcome: Admitted, Source: FromOpen}
			}
			check.Result.Err = err
		}
		check.Known = check.Result.counted()
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
