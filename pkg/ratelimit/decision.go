package ratelimit

import (
	"context"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
)

// Check is what one policy said about a request.
type Check struct {
	Policy *policy.Policy
	// Numbers are those in force for this request: the policy's own, or an override's.
	Numbers *policy.Numbers
	// Groups has a bit for each of the request's groups of attributes (Envoy: descriptors) that the policy used.
	Groups uint64
	Op     Op
	Cost   uint64
	// Missing is the attribute of the key that the request lacks, when Result.Source is FromMissingKey.
	Missing string
	// Known says whether Result.Remaining, Wait and Reset were learnt from a bucket. It is false where the bucket was not asked,
	// and where nobody could.
	Known  bool
	Result Result
	// MadeUp is the part of what earlier commits have told as uncharged that is charged now, since this commit gave back; see
	// [Reservation.Commit].
	MadeUp uint64
}

// Decision answers a request. One that came from a [Call], or was told to OnDecision, is valid until the call is released.
type Decision struct {
	// Allowed is false if any enforced policy denied.
	Allowed bool
	// Checks has one element per policy and combination of attributes that applied, in file order, shadow policies included.
	Checks []Check
	// Skipped are policies that matched but lacked a key attribute and do not insist on it.
	Skipped []Skip
	// Hits are the policies that apply, with the keys of their buckets, in file order: one for each of Checks and Skipped, unless it is a
	// commit's, which has checks of what changed only. Nil in a decision that outlives its call, since keys do not.
	Hits []policy.Hit
	// DomainKnown is false if no policy file serves the request's domain.
	DomainKnown bool
	// Used has a bit for each of the request's groups that fed some policy, if only with its hash tag.
	Used uint64
	// InvalidIPs counts values that should have been IP addresses and were not.
	InvalidIPs int
	// Set is the policy set that decided.
	Set *policy.Set
	// Took is how long the decision took.
	Took time.Duration
}

// Clone is a copy of d that stays valid.
func (d *Decision) Clone() Decision {
	c := *d
	c.Checks = slices.Clone(d.Checks)
	c.Skipped = slices.Clone(d.Skipped)
	c.Hits = nil
	return c
}

// Wait is how long whoever was denied should wait: the longest wait of the policies that denied. Then the
// same request is admitted, if nobody else calls meanwhile, and no result is Tentative. 0 if the wait is not known, or if the
// request is allowed. ok is false if waiting does not help: the cost is more than a bucket holds, or a key is missing.
func (d *Decision) Wait() (wait time.Duration, ok bool) {
	for i := range d.Checks {
		c := &d.Checks[i]
		if c.Shadow() || !c.Denied() {
			continue
		}
		if c.Final() {
			return 0, false
		}
		wait = max(wait, c.Result.Wait)
	}
	return wait, true
}

// Unavailable reports whether the request is denied only because a store did not answer, by policies that are closed then: the
// client has used up nothing.
func (d *Decision) Unavailable() bool {
	for i := range d.Checks {
		if c := &d.Checks[i]; !c.Shadow() && c.Denied() && c.Result.Source != FromClosed {
			return false
		}
	}
	return !d.Allowed
}

// Abandoned reports whether the request is admitted by a policy's onStoreFailure while ctx, which was given to Check, has ended. Then the store
// may not have counted it because nobody waited for its answer. Who serves clients that can end ctx, by hanging up or by a
// deadline of theirs, does not do what was asked, lest they get more done than the policies allow. Packages httplimit and grpclimit see to that.
func (d *Decision) Abandoned(ctx context.Context) bool {
	if ctx.Err() == nil || !d.Allowed {
		return false
	}
	for i := range d.Checks {
		c := &d.Checks[i]
		if !c.Shadow() && (c.Result.Source == FromOpen || c.Result.Source == FromLocal) {
			return true
		}
	}
	return false
}

// Uncharged is how much of a reported cost could not be charged, under the policy where that is most: there was no room, not even in
// debt, or the store failed. Only a report to a postpaid policy and [Reservation.Commit] can leave anything uncharged.
func (d *Decision) Uncharged() uint64 {
	var most uint64
	for i := range d.Checks {
		switch c := &d.Checks[i]; {
		case c.Shadow() || c.Op != Force:
		case !c.Known:
			most = max(most, c.Cost)
		default:
			most = max(most, c.Result.Uncharged)
		}
	}
	return most
}

// MadeUp is how much of what other commits have told as Uncharged is charged after all, since this one gave back, under the policy where that
// is most. What has been charged for many reservations is what they took, less all Uncharged, plus all MadeUp.
func (d *Decision) MadeUp() uint64 {
	var most uint64
	for i := range d.Checks {
		if c := &d.Checks[i]; !c.Shadow() {
			most = max(most, c.MadeUp)
		}
	}
	return most
}

// Skip tells of a policy that matched, but had no key.
type Skip struct {
	Policy  *policy.Policy
	Missing string
}

// Shadow reports whether the check takes no part in the answer.
func (c *Check) Shadow() bool { return c.Policy.Mode == policy.Shadow }

// Denied reports whether the check, by itself, denies.
func (c *Check) Denied() bool { return c.Result.Outcome == Denied }

// Stricter reports whether a leaves the client less than b: a denial before an admission, one for ever before one that ends, the
// longer wait before the shorter, what is known before what is not, less remaining before more.
func Stricter(a, b *Check) bool {
	if a.Denied() != b.Denied() {
		return a.Denied()
	}
	if a.Denied() {
		if a.Final() != b.Final() {
			return a.Final()
		}
		return a.Result.Wait > b.Result.Wait
	}
	if a.Known != b.Known {
		return a.Known
	}
	return a.Result.Remaining < b.Result.Remaining
}

// Final reports whether the check denies and no waiting helps.
func (c *Check) Final() bool {
	return c.Denied() && (c.Result.Source == FromNever || c.Result.Source == FromMissingKey)
}
