package buckets

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/blocklist"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
	"github.com/envoy-rls/envoy-rls/pkg/redisbackend"
)

// attempts is how often the store is asked, if asking again does no harm.
const attempts = 3

// acquire has the store carry out one operation. The error is nil, or a fault.
func (o *Options) acquire(ctx context.Context, b ratelimit.Bucket) (ratelimit.Result, error) {
	repeatable := b.Op != ratelimit.Refund
	var err error
	for range attempts {
		r := o.Store.Acquire(ctx, []ratelimit.Bucket{b}, nil)[0]
		if r.Err == nil {
			return r, nil
		}
		err = r.Err
		if ran := mayHaveRun(err); ctx.Err() != nil || ran && !repeatable {
			break
		}
	}
	return ratelimit.Result{}, storeFault(err, b.Op != ratelimit.Peek && mayHaveRun(err))
}

func mayHaveRun(err error) bool {
	var e *redisbackend.Error
	return !errors.As(err, &e) || e.MayHaveRun
}

func storeFault(err error, mayHaveRun bool) error {
	if mayHaveRun {
		return fmt.Errorf("%w (%w)", faultf(http.StatusGatewayTimeout, "the store did not answer in time: %v", err), errUnknown)
	}
	return faultf(http.StatusServiceUnavailable, "the store does not answer, nothing was changed: %v", err)
}

// change carries out a request for a change.
func (o *Options) change(ctx context.Context, action Action, q *question, t *target, actor string) (Report, error) {
	r := Report{Action: action, Policy: t.policyID, Key: t.key.Hidden(), Limit: t.limits.Capacity, Scope: thisInstance}
	r.Shadow = t.shadow()
	if err := q.check(action, t); err != nil {
		return r, err
	}
	before, err := o.state(ctx, t)
	switch {
	case err == nil:
	case action == Block || action == Unblock: // the list can take it, though the bucket's node may be down
		before.Unknown = true
	default:
		return r, err
	}
	r.Before, r.After = &before, before
	switch action {
	case Block:
		err = o.block(ctx, q, t, actor, &r)
	case Unblock:
		err = o.unblock(ctx, t, &r)
	default:
		err = o.fill(ctx, action, q, t, &r)
	}
	return r, err
}

// fill changes what a bucket has left.
func (o *Options) fill(ctx context.Context, action Action, q *question, t *target, r *Report) error {
	b := t.bucket(ratelimit.Reset, 1)
	switch {
	case action == Refund:
		b.Op, b.Cost = ratelimit.Refund, *q.Cost
	case action == Set && float64(*q.Remaining) < t.limits.Capacity:
		b.Op, b.Cost = ratelimit.Put, uint64(t.limits.Capacity)-*q.Remaining
	}
	result, err := o.acquire(ctx, b)
	if err != nil {
		return err
	}
	r.After.Remaining = result.Remaining
	if o.Shared == nil {
		return nil
	}
	r.Scope = allInstances
	if untold := o.Shared.Changed(ctx, t.key, result.Remaining, action == Refund); untold != nil {
		r.Scope = thisInstance
		r.Warning = "other instances may go on denying for a second, and decide by what they knew while Redis fails: " + untold.Error()
	}
	return nil
}

func (o *Options) block(ctx context.Context, q *question, t *target, actor string, r *Report) error {
	now := time.Now()
	b := blocklist.Block{
		PolicyID: t.policyID, Key: t.key.String(), Since: now, Until: q.until(now), Reason: q.Reason, Actor: blocklist.Clean(actor, blocklist.MaxActor),
	}
	var err error
	if o.Shared != nil {
		err = o.Shared.Block(ctx, b)
		r.Scope = allInstances
	} else {
		err = o.Blocks.Add(b)
	}
	if err != nil {
		return blockFault(err)
	}
	v := viewOf(b)
	r.After.Block = &v
	return nil
}

func (o *Options) unblock(ctx context.Context, t *target, r *Report) error {
	var found bool
	var err error
	if o.Shared != nil {
		found, err = o.Shared.Unblock(ctx, t.key.String())
		r.Scope = allInstances
	} else {
		found = o.Blocks.Remove(t.key.String())
	}
	switch {
	case err != nil:
		return blockFault(err)
	case !found:
		return faultf(http.StatusNotFound, "this bucket is not blocked")
	}
	r.After.Block = nil
	return nil
}

func blockFault(err error) error {
	switch {
	case errors.Is(err, blocklist.ErrFull):
		return faultf(http.StatusConflict, "%v", err)
	case errors.Is(err, blocklist.ErrContended):
		return faultf(http.StatusConflict, "%v; nothing was changed", err)
	}
	return storeFault(err, mayHaveRun(err))
}
