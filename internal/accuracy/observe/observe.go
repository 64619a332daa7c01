// Package observe notes what a rate limit service says to requests: which buckets a request is about follows from the policies, and what
// became of them from the reply.
package observe

import (
	"context"
	"math"
	"math/bits"
	"strconv"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Observer notes calls one after the other. It is for one goroutine.
type Observer struct {
	recorder *accuracy.Recorder
	worker   *accuracy.Worker
	fresh    bool
	asked    *asked
	limiter  *ratelimit.Limiter
	request  descriptors.Request
	known    map[string]uint32 // buckets by key
}

// New makes an observer whose notes are the recorder's. The service must have these policies. fresh says that nobody has used the buckets
// before.
func New(r *accuracy.Recorder, policies *policy.Set, fresh bool) *Observer {
	o := &Observer{recorder: r, worker: r.Worker(), fresh: fresh, asked: &asked{}, known: map[string]uint32{}}
	o.limiter = ratelimit.New(ratelimit.Options{Store: o.asked, Policies: policies})
	return o
}

// Now is when a call begins.
func (o *Observer) Now() int64 { return o.worker.Now() }

// asked is a store that only remembers what it was asked for last, so that the limiter says which buckets a request is about.
type asked struct{ buckets []ratelimit.Bucket }

// Acquire implements [ratelimit.Store].
func (a *asked) Acquire(_ context.Context, buckets []ratelimit.Bucket, _ []ratelimit.Result) []ratelimit.Result {
	a.buckets = append(a.buckets[:0], buckets...)
	results := make([]ratelimit.Result, len(buckets))
	for i := range results {
		results[i] = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore}
	}
	return results
}

// Note notes a call that began at start: the request and the reply as they are on the wire, or that it failed. The error tells of bytes that are
// neither, or of a bucket whose limits have changed.
func (o *Observer) Note(start int64, request, reply []byte, failed error) error {
	if err := o.request.Unmarshal(request); err != nil {
		return err
	}
	var said rls.RateLimitResponse
	if err := proto.Unmarshal(reply, &said); err != nil {
		return err
	}
	o.asked.buckets = o.asked.buckets[:0]
	call := o.request.Begin(o.limiter)
	defer call.Release()
	call.Check(context.Background())
	var entries []accuracy.Entry
	groups := make([]uint64, 0, len(o.asked.buckets))
	for i := range o.asked.buckets {
		b := &o.asked.buckets[i]
		if b.Shadow {
			continue
		}
		at, err := o.bucket(b)
		if err != nil {
			return err
		}
		entries = append(entries, accuracy.Entry{
			Bucket: at, Cost: b.Cost, Op: accuracy.OpOf(b.Op), Outcome: accuracy.Unknown, Source: accuracy.FromStore, Left: math.NaN(),
		})
		groups = append(groups, groupsOf(call.Hits(), b))
	}
	if len(entries) == 0 {
		return nil // no bucket has a say
	}
	for i := range entries {
		if failed == nil {
			Tell(&entries[i], &said, own(groups, i))
		}
	}
	o.worker.Note(start, entries...)
	return nil
}

func (o *Observer) bucket(b *ratelimit.Bucket) (uint32, error) {
	if at, ok := o.known[string(b.Key.Bytes())]; ok {
		return at, nil
	}
	key := b.Key.String()
	at, err := o.recorder.Bucket(accuracy.Bucket{Key: key, Limits: b.Limits, Group: string(b.Key.Tag()), Fresh: o.fresh})
	if err == nil {
		o.known[key] = at
	}
	return at, err
}

func groupsOf(hits []policy.Hit, b *ratelimit.Bucket) uint64 {
	for i := range hits {
		if hits[i].Missing == "" && string(hits[i].Key.Bytes()) == string(b.Key.Bytes()) {
			return hits[i].Groups
		}
	}
	return 0
}

// own is a descriptor that is about bucket i and no other one, so that its status is about that bucket; -1: there is none.
func own(groups []uint64, i int) int {
	mine := groups[i]
	for k, other := range groups {
		if k != i {
			mine &^= other
		}
	}
	if mine == 0 {
		return -1
	}
	return bits.TrailingZeros64(mine)
}

// Tell fills in what a reply says of a bucket, whose only policy a descriptor has; -1: none has, and only the whole answer is known.
func Tell(e *accuracy.Entry, said *rls.RateLimitResponse, descriptor int) {
	e.Passed = said.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT
	e.Source = accuracy.SourceOf(said.GetDynamicMetadata().GetFields()["source"].GetStringValue())
	e.Outcome = accuracy.Unasked
	if descriptor < 0 || descriptor >= len(said.GetStatuses()) {
		return
	}
	status := said.GetStatuses()[descriptor]
	known := status.GetCurrentLimit() != nil
	if status.GetCode() == rls.RateLimitResponse_OVER_LIMIT {
		e.Outcome, e.Wait = accuracy.Denied, retryAfter(said).Nanoseconds()
		if !known { // it is not what the bucket holds that denies
			e.Source = accuracy.FromClosed
		}
	} else if known {
		e.Outcome = accuracy.Admitted
	}
	if known {
		e.Left = float64(status.GetLimitRemaining())
	}
}

func retryAfter(said *rls.RateLimitResponse) time.Duration {
	for _, h := range said.GetResponseHeadersToAdd() {
		if h.GetKey() == "Retry-After" {
			seconds, _ := strconv.ParseInt(h.GetValue(), 10, 32) // one that is no number promises nothing
			return time.Duration(seconds) * time.Second
		}
	}
	return 0
}
