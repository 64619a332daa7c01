package simulate

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/memorybackend"
	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// replay is a log under way.
type replay struct {
	o        *Options
	set      *policy.Set
	fields   *fields
	queue    reorder
	free     []*record
	now      int64 // microseconds since 1970, by the log; never runs back
	store    *memorybackend.Store
	limiter  *ratelimit.Limiter
	request  descriptors.Request
	postpaid bool // some policy is

	lines    LineCounts
	bad      []BadLine
	first    int64 // time of the first request replayed
	denied   int64
	policies []*tally
	keys     *keys
	demand   demand
}

func newReplay(o *Options, set *policy.Set) *replay {
	r := &replay{
		o:     o,
		queue: reorder{slack: o.Reorder.Microseconds()},
		keys:  newKeys(o.MaxKeys),
	}
	r.set = set.WithClock(func() time.Time { return time.UnixMicro(r.now) })
	r.demand = demand{most: o.MaxEvents, keys: r.keys}
	view := r.set.View([]byte(o.Domain))
	r.fields = newFields(view, o.Fields)
	r.store = memorybackend.New(memorybackend.Options{Now: func() int64 { return r.now }})
	r.limiter = ratelimit.New(ratelimit.Options{Store: r.store, Policies: r.set})
	r.request = descriptors.Request{Domain: []byte(o.Domain), Descriptors: make([]descriptors.Descriptor, 1)}
	r.policies = make([]*tally, len(set.Policies()))
	for _, p := range view.Policies() {
		r.policies[p.Index] = &tally{policy: p}
		r.postpaid = r.postpaid || p.Charge == policy.Postpaid
	}
	return r
}

// progressEvery is after how many lines progress is told and ctx is looked at.
const progressEvery = 1 << 12

func (r *replay) read(ctx context.Context, log *lines) error {
	for {
		line, err := log.next()
		switch {
		case errors.Is(err, io.EOF):
			r.drain(ctx, true)
			return nil
		case errors.Is(err, errTooLong):
			r.refuse(log.n, err)
		case err != nil:
			return err
		default:
			r.take(line, log.n)
			r.drain(ctx, false)
		}
		if log.n%progressEvery != 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.o.Progress != nil {
			r.o.Progress(log.n)
		}
	}
}

// take parses a line and has it wait for its turn.
func (r *replay) take(line []byte, n int64) {
	rec := r.record(n)
	if err := r.fields.parse(line, rec); err != nil {
		r.refuse(n, err)
		r.release(rec)
		return
	}
	if rec.denied && r.o.SkipDenied {
		r.lines.Skipped++
		r.release(rec)
		return
	}
	r.queue.push(rec)
}

func (r *replay) record(line int64) *record {
	var rec *record
	if n := len(r.free); n > 0 {
		rec, r.free = r.free[n-1], r.free[:n-1]
	} else {
		rec = &record{}
	}
	rec.reset(line)
	return rec
}

// maxKeptText is how many bytes of text one record leaves to the next.
const maxKeptText = 1 << 10

func (r *replay) release(rec *record) {
	if cap(rec.text) > maxKeptText {
		rec.text = nil
	}
	r.free = append(r.free, rec)
}

// maxBad is how many lines that could not be read are reported one by one.
const maxBad = 5

func (r *replay) refuse(line int64, why error) {
	r.lines.Bad++
	if len(r.bad) < maxBad {
		r.bad = append(r.bad, BadLine{line, why.Error()})
	}
}

// drain replays what need not wait for earlier lines.
func (r *replay) drain(ctx context.Context, end bool) {
	for rec := r.queue.pop(end); rec != nil; rec = r.queue.pop(end) {
		r.decide(ctx, rec)
		r.release(rec)
	}
}

// decide gives a record to the limiter, as the service would give Envoy's request.
func (r *replay) decide(ctx context.Context, rec *record) {
	switch {
	case r.lines.Replayed == 0:
		r.first = rec.at
	case rec.at < r.now:
		r.lines.Late++
	}
	r.now = max(r.now, rec.at)
	r.lines.Replayed++
	if rec.denied {
		r.lines.DeniedBefore++
	}
	r.fill(rec)
	call := r.request.Begin(r.limiter)
	defer call.Release()
	if r.postpaid && rec.hasCost && rec.cost > 0 {
		look := r.request.Begin(r.limiter)
		defer look.Release()
		if d := look.Peek(ctx); slices.ContainsFunc(look.Hits(), postpaid) {
			r.conclude(rec, look, d)
			if d.Allowed {
				call.Check(ctx)
			}
			return
		}
	}
	r.conclude(rec, call, call.Check(ctx))
}

// postpaid policies are asked whether there is anything left, and afterwards told what the request cost, as Envoy does with two calls.
func postpaid(h policy.Hit) bool { return h.Policy.Charge == policy.Postpaid }

// conclude counts a decision.
func (r *replay) conclude(rec *record, call *ratelimit.Call, d *ratelimit.Decision) {
	if !d.Allowed {
		r.denied++
	}
	if r.o.OnDecision != nil {
		r.o.OnDecision(time.UnixMicro(r.now), d)
	}
	r.count(rec, call.Hits(), d)
}

// fill makes the request of a record.
func (r *replay) fill(rec *record) {
	d := &r.request.Descriptors[0]
	*d = descriptors.Descriptor{Entries: d.Entries[:0]}
	r.request.HitsAddend = 0
	if rec.hasCost {
		r.request.SetCost(rec.cost, false)
	}
	for _, v := range rec.values {
		if t := &r.fields.targets[v.target]; t.entry != nil {
			d.Entries = append(d.Entries, descriptors.Entry{Key: t.entry, Value: rec.bytes(v)})
		}
	}
}

// count takes a decision into the counts. Hits and checks are in one order, but that skipped policies have no check.
func (r *replay) count(rec *record, hits []policy.Hit, d *ratelimit.Decision) {
	checks := d.Checks
	for i := range hits {
		h := &hits[i]
		t := r.policies[h.Policy.Index]
		if h.Missing != "" && h.Policy.OnMissingKey == policy.SkipPolicy {
			t.skipped++
			continue
		}
		c := &checks[0]
		checks = checks[1:]
		t.count(c, r.now)
		if h.Missing == "" {
			r.countKey(rec, t, h, c)
		}
	}
}

func (r *replay) countKey(rec *record, t *tally, h *policy.Hit, c *ratelimit.Check) {
	key, ok := r.keys.count(h.Key, t.policy.Index, c.Denied())
	switch {
	case !ok:
		t.unknown++
		return
	case h.Numbers != &t.policy.Numbers:
		t.overridden++
		return
	case t.policy.Charge == policy.Postpaid || !c.Op.Deniable():
		return
	}
	e := event{at: r.now, key: key}
	if !rec.hasCost || rec.cost > 0 {
		e.cost = uint32(min(c.Cost, mostCost))
	}
	r.demand.add(&t.timeline, e)
}
