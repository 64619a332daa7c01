package fallback

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/policy"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// ErrOpen is why a bucket was not decided that the store was not asked for: its shard's breaker is open.
var ErrOpen = errors.New("the shard's breaker is open")

// withheld is the result of a bucket that the store is not asked for.
var withheld = ratelimit.Result{Source: ratelimit.FromStore, Err: ErrOpen}

// trip is one call in which not all goes well.
type trip struct {
	store   *Store
	buckets []ratelimit.Bucket
	results []ratelimit.Result

	shards   []visit
	shardOf  []int   // the index in shards for each bucket, once asked
	withheld int     // buckets that are not sent
	owing    []owing // of each bucket; none: nothing is owed for any
	toPay    []int   // buckets for which it is not known yet
	looking  bool    // the request is denied anyway: what is sent charges nothing

	sent        []ratelimit.Bucket // if they are not all buckets as they came
	sentAt      []int              // where they stand in buckets
	sentResults []ratelimit.Result

	errs  []error // of each bucket
	local []int   // buckets that this process decides
	wait  time.Duration
}

// visit is a shard that a call has to do with.
type visit struct {
	shard   string
	breaker *breaker // nil: it has not failed lately
	through bool
	probe   bool
	wait    time.Duration

	worked bool
	fault  Fault  // with Trouble, if it failed
	key    []byte // of a bucket that did
}

func (t *trip) begin(s *Store, buckets []ratelimit.Bucket, results []ratelimit.Result) {
	t.store, t.buckets, t.results = s, buckets, results
	t.withheld, t.looking, t.wait = 0, false, 0
}

// end lets go of what belongs to the caller.
func (t *trip) end() {
	s := t.store
	clear(t.shards)
	clear(t.sent)
	clear(t.sentResults)
	clear(t.errs)
	t.shards, t.shardOf, t.local, t.errs = t.shards[:0], t.shardOf[:0], t.local[:0], t.errs[:0]
	t.sent, t.sentAt, t.sentResults, t.owing = t.sent[:0], t.sentAt[:0], t.sentResults[:0], t.owing[:0]
	t.store, t.buckets, t.results = nil, nil, nil
	s.trips.Put(t)
}

// ask finds out which buckets may be sent.
func (t *trip) ask(now time.Duration) {
	all := &t.store.shards
	all.tidy(now)
	for i := range t.buckets {
		b := &t.buckets[i]
		at := t.visit(t.store.options.Shard(b.Key.Bytes()), now)
		t.shardOf = append(t.shardOf, at)
		if t.shards[at].through {
			continue
		}
		t.withheld++
		t.looking = t.looking || enforced(b) && b.OnFailure == policy.Closed
	}
}

// visit finds or adds a shard.
func (t *trip) visit(shard string, now time.Duration) int {
	for i := range t.shards {
		if t.shards[i].shard == shard {
			return i
		}
	}
	v := visit{shard: shard, through: true, breaker: t.store.shards.find(shard)}
	if v.breaker != nil {
		v.through, v.probe, v.wait = v.breaker.admit(now)
	}
	t.shards = append(t.shards, v)
	return len(t.shards) - 1
}

// send has the store decide what may be sent.
func (t *trip) send(ctx context.Context) {
	if t.withheld == 0 {
		t.results = t.store.options.Store.Acquire(ctx, t.buckets, t.results)
		return
	}
	undoable := t.othersMayDeny()
	for i := range t.buckets {
		if !t.shards[t.shardOf[i]].through {
			t.results[i] = withheld
			continue
		}
		b := t.buckets[i]
		b.Undoable = b.Undoable || undoable
		switch {
		case t.owes(i) == unpaid:
			continue
		case t.owes(i) == looked:
			b.Op, b.Cost, b.Shadow = ratelimit.Peek, 1, true // its share decides
		case t.looking && b.Op == ratelimit.Take:
			b.Op = ratelimit.Peek
		}
		t.sent, t.sentAt = append(t.sent, b), append(t.sentAt, i)
	}
	if len(t.sent) == 0 {
		return
	}
	t.sentResults = t.store.options.Store.Acquire(ctx, t.sent, t.sentResults)
	for j, i := range t.sentAt {
		t.results[i] = t.sentResults[j]
	}
}

// othersMayDeny reports whether the failure mode of a bucket that the store has no say in can deny the request.
func (t *trip) othersMayDeny() bool {
	for i := range t.buckets {
		b := &t.buckets[i]
		asked := t.shards[t.shardOf[i]].through && t.owes(i) == paid
		if !asked && enforced(b) && (b.OnFailure == policy.Local || b.OnFailure == policy.Closed) {
			return true
		}
	}
	return false
}

// record tells the breakers what came of the call. sent is when it was, if that is known better than by its errors.
func (t *trip) record(sent time.Duration) {
	for i := range t.results {
		switch err := t.results[i].Err; {
		case err == nil:
			if v := t.visited(i); v != nil {
				v.worked = true
			}
		case err != ErrOpen && err != ErrOwed: //nolint:errorlint // they are those values and no others
			t.blame(i, err)
		}
	}
	for i := range t.shards {
		if v := &t.shards[i]; v.breaker != nil || v.fault.Trouble {
			v.tell(&t.store.shards, sent)
		}
	}
}

// visited is the shard of a bucket, if it was asked for; else nil.
func (t *trip) visited(i int) *visit {
	if len(t.shardOf) == 0 {
		return nil
	}
	return &t.shards[t.shardOf[i]]
}

// blame finds out which shard an error is about.
func (t *trip) blame(i int, err error) {
	fault := t.store.options.Classify(err)
	if !fault.Trouble {
		if v := t.visited(i); v != nil && fault.Answered && (fault.Shard == "" || fault.Shard == v.shard) {
			v.worked = true
		}
		return
	}
	key := t.buckets[i].Key.Bytes()
	if fault.Shard == "" {
		fault.Shard = t.store.options.Shard(key)
	}
	for j := range t.shards {
		if v := &t.shards[j]; v.shard == fault.Shard {
			v.fault, v.key = fault, key
			return
		}
	}
	t.shards = append(t.shards, visit{shard: fault.Shard, fault: fault, key: key})
}

// tell passes on what was learnt of a shard.
func (v *visit) tell(all *shards, sent time.Duration) {
	now := all.now()
	switch {
	case v.fault.Trouble:
		if !v.fault.Sent.IsZero() {
			sent = v.fault.Sent.Sub(all.began)
		} else if sent == 0 {
			sent = now
		}
		all.findOrAdd(v.shard).failed(sent, now, v.probe, v.fault.Reason, v.key)
	case v.worked:
		v.breaker.worked(sent, now, v.probe)
	case v.probe:
		v.breaker.unknown(now)
	}
}

func enforced(b *ratelimit.Bucket) bool { return !b.Shadow && b.Op.Deniable() }

// answer decides what the store has not: closed policies first, and local ones last, so that a request which is denied charges no share.
func (t *trip) answer() {
	byStore, byMode := false, false // denied
	for i := range t.buckets {
		b, r := &t.buckets[i], &t.results[i]
		t.errs = append(t.errs, r.Err)
		if r.Err == nil {
			byStore = byStore || enforced(b) && r.Outcome == ratelimit.Denied
			continue
		}
		t.store.options.OnFailure(b, r.Err)
		wait := t.waitFor(i)
		switch {
		case b.OnFailure == policy.Local:
			t.local = append(t.local, i)
			t.wait = max(t.wait, wait)
		case b.OnFailure == policy.Closed && b.Op.Deniable():
			*r = ratelimit.Result{Outcome: ratelimit.Denied, Source: ratelimit.FromClosed, Wait: comeBack(wait)}
			byMode = byMode || enforced(b)
		default:
			*r = ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromOpen}
		}
	}
	if len(t.local) > 0 {
		t.store.local.decide(t.buckets, t.results, t.local, byStore || byMode, t.wait)
		for _, i := range t.local {
			byMode = byMode || enforced(&t.buckets[i]) && t.results[i].Outcome == ratelimit.Denied
		}
	}
	if byStore || byMode {
		t.deny(byStore)
	}
}

// waitFor is how long it is, as far as known, until the shard of a bucket is asked again.
func (t *trip) waitFor(i int) time.Duration {
	if v := t.visited(i); v != nil {
		return v.wait
	}
	return 0
}

// comeBack is what a closed policy tells clients to wait. They should not all come back at once, and Retry-After has whole seconds only.
func comeBack(wait time.Duration) time.Duration {
	return max(time.Second, wait) + rand.N[time.Duration](3)*time.Second
}

// deny gives back what was charged for a request that is denied, and what turns out to have been.
func (t *trip) deny(byStore bool) {
	for i, err := range t.errs {
		if err != nil && err != ErrOpen && t.owes(i) != unpaid { //nolint:errorlint // as above
			t.store.options.Regret(err)
		}
	}
	if !byStore && !t.looking { // else the store has charged nothing
		t.store.undos.giveBack(t.buckets, t.results)
	}
}
