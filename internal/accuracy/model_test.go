package accuracy_test

import (
	"math"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/envoy-rls/envoy-rls/internal/accuracy"
	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

func tokens(capacity, perSecond float64) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.TokenBucket, Capacity: capacity, Rate: perSecond / 1e6}
}

func log(limit float64, window time.Duration) algorithm.Limits {
	return algorithm.Limits{Kind: algorithm.SlidingLog, Capacity: limit, Window: window.Microseconds()}
}

// charge is what a model's bucket was charged with, at a time in nanoseconds.
type charge struct {
	at    int64
	units float64
}

// model is a bucket that remembers everything, so that what it says follows from the definition and from nothing else.
type model struct {
	limits  algorithm.Limits
	charges []charge // in order of time; what was given back is negative
}

// left is what there is at a time, no earlier than the last charge.
func (m *model) left(now int64) float64 {
	l := m.limits
	if l.Kind == algorithm.SlidingLog {
		count := 0.0
		for _, c := range m.charges {
			if now-c.at < l.Window*1000 {
				count += c.units
			}
		}
		return l.Capacity - count
	}
	level, last := l.Capacity, now
	if len(m.charges) > 0 {
		last = m.charges[0].at
	}
	for _, c := range m.charges {
		level = min(l.Capacity, level+float64(c.at-last)*l.Rate/1000)
		level, last = min(l.Capacity, level-c.units), c.at
	}
	return min(l.Capacity, level+float64(now-last)*l.Rate/1000)
}

// wait is how long until there is as much as cost.
func (m *model) wait(now int64, cost float64) int64 {
	if cost > m.limits.Capacity || m.limits.Kind == algorithm.TokenBucket && m.limits.Rate == 0 {
		return 0
	}
	low, high := int64(0), int64(time.Millisecond)
	for m.left(now+high) < cost {
		low, high = high, 2*high
	}
	for high-low > 1 {
		if middle := (low + high) / 2; m.left(now+middle) < cost {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// history makes a record by what a store does that keeps its limits, of calls that take a while before and after it decides.
type history struct {
	t       *rapid.T
	record  accuracy.Record
	models  []*model
	shares  []*model // of what is decided by shares; nil: nothing is
	owed    []debt
	now     int64
	calls   uint64
	slowest int64
}

// debt is what the store has still to be charged for what a share admitted.
type debt struct {
	bucket int
	units  float64
	latest int64
}

func newHistory(t *rapid.T, buckets int, shares bool) *history {
	h := &history{t: t, now: rapid.Int64Range(0, 1e15).Draw(t, "now")}
	h.slowest = rapid.SampledFrom([]int64{0, 1e3, 1e6, 5e7}).Draw(t, "slowest")
	if shares {
		h.shares = []*model{}
	}
	for range buckets {
		h.addBucket()
	}
	return h
}

func (h *history) addBucket() {
	limits := rapid.SampledFrom([]algorithm.Limits{
		tokens(3, 10), tokens(1, 100), tokens(5, 0.001), tokens(20, 1000), tokens(2, 0),
		log(1, 10*time.Millisecond), log(3, 100*time.Millisecond), log(5, time.Hour), log(2, 20*time.Millisecond),
	}).Draw(h.t, "limits")
	b := accuracy.Bucket{Key: string(rune('a' + len(h.models))), Limits: limits, Fresh: true, Group: rapid.SampledFrom([]string{"", "g"}).Draw(h.t, "group")}
	h.record.Buckets = append(h.record.Buckets, b)
	h.models = append(h.models, &model{limits: limits})
	if h.shares != nil {
		h.shares = append(h.shares, &model{limits: limits})
	}
}

// pass lets time go by. Debts are paid before a second is over.
func (h *history) pass() {
	next := h.now + rapid.SampledFrom([]int64{0, 1, 1e3, 1e6, 1e7, 3e7, 1e8, 1e9}).Draw(h.t, "pass")
	h.owed = slices.DeleteFunc(h.owed, func(d debt) bool {
		if d.latest > next && !rapid.Bool().Draw(h.t, "pay") {
			return false
		}
		m := h.models[d.bucket]
		if units := min(d.units, math.Floor(m.left(h.now))); units > 0 { // down to empty at most
			m.charges = append(m.charges, charge{h.now, units})
		}
		return true
	})
	h.now = next
}

// byShare is a take of a bucket that shares decide, since the store fails. All of them together are one model here, which is the most that
// they can be.
func (h *history) byShare() {
	bucket := rapid.IntRange(0, len(h.shares)-1).Draw(h.t, "bucket")
	m, cost := h.shares[bucket], float64(rapid.IntRange(1, 3).Draw(h.t, "cost"))
	e := accuracy.Entry{
		Start: h.now - h.delay(), End: h.now + h.delay(), Call: h.calls, Bucket: uint32(bucket), Op: accuracy.Take, Cost: uint64(cost),
		Outcome: accuracy.Denied, Source: accuracy.FromLocal, Left: math.Floor(m.left(h.now)),
	}
	if m.left(h.now) >= cost {
		e.Outcome, e.Passed = accuracy.Admitted, true
		m.charges = append(m.charges, charge{h.now, cost})
		h.owed = append(h.owed, debt{bucket, cost, e.End + 1e9})
	}
	h.calls++
	h.record.Entries = append(h.record.Entries, e)
}

// delay is how long a call is on its way.
func (h *history) delay() int64 { return rapid.Int64Range(0, h.slowest).Draw(h.t, "delay") }

// call is a take or peek of some buckets, all or none, or something that is given back.
func (h *history) call() {
	start, end := h.now-h.delay(), h.now+h.delay()
	order := rapid.Permutation(identity(len(h.models))).Draw(h.t, "buckets")
	order = order[:rapid.IntRange(1, len(order)).Draw(h.t, "count")]
	op := rapid.SampledFrom([]accuracy.Op{accuracy.Take, accuracy.Take, accuracy.Take, accuracy.Take, accuracy.Peek, accuracy.Refund}).Draw(h.t, "op")
	var entries []accuracy.Entry
	passed := true
	for _, b := range order {
		cost := uint64(rapid.IntRange(1, 3).Draw(h.t, "cost"))
		e := accuracy.Entry{Start: start, End: end, Call: h.calls, Bucket: uint32(b), Op: op, Cost: cost, Outcome: accuracy.Admitted, Source: accuracy.FromStore}
		if left := h.models[b].left(h.now); op != accuracy.Refund && left < float64(cost) {
			e.Outcome, passed, e.Wait = accuracy.Denied, false, h.models[b].wait(h.now, float64(cost))
		}
		entries = append(entries, e)
	}
	for i := range entries {
		e := &entries[i]
		m := h.models[e.Bucket]
		switch {
		case op == accuracy.Refund:
			h.giveBack(m, float64(e.Cost))
		case op == accuracy.Take && passed:
			m.charges = append(m.charges, charge{h.now, float64(e.Cost)})
		default:
		}
		e.Passed, e.Left = passed, math.NaN()
		if rapid.Bool().Draw(h.t, "told") {
			e.Left = math.Floor(m.left(h.now))
		}
	}
	h.calls++
	h.record.Entries = append(h.record.Entries, entries...)
}

func (h *history) giveBack(m *model, units float64) {
	if m.limits.Kind == algorithm.TokenBucket {
		m.charges = append(m.charges, charge{h.now, -units})
		return
	}
	for i := len(m.charges) - 1; i >= 0 && units > 0; i-- { // the newest entries go
		cut := min(units, m.charges[i].units)
		m.charges[i].units -= cut
		units -= cut
	}
}

func identity(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

// generated is a history of calls that a store which keeps its limits could have made.
func generated(t *rapid.T, buckets, calls int, shares bool) *accuracy.Record {
	h := newHistory(t, buckets, shares)
	for range rapid.IntRange(1, calls).Draw(t, "calls") {
		h.pass()
		if shares && rapid.IntRange(0, 2).Draw(t, "fails") == 0 {
			h.byShare()
		} else {
			h.call()
		}
	}
	return &h.record
}

// bruteExcess is the most that was admitted between two times beyond the refill, for calls that lie wholly within, less what came back.
func bruteExcess(r *accuracy.Record, bucket uint32, o accuracy.Options) float64 {
	l := r.Buckets[bucket].Limits
	worst := math.Inf(-1)
	for _, from := range r.Entries {
		for _, to := range r.Entries {
			a, b := from.Start, to.End
			if l.Kind == algorithm.SlidingLog && float64(b-a) >= float64(l.Window)*1000*(1-o.Drift)-float64(o.Step) || b < a {
				continue
			}
			sum, any := -l.Rate/1000*(1+o.Drift)*float64(b-a), false
			for _, e := range r.Entries {
				switch {
				case e.Bucket != bucket:
				case e.Op == accuracy.Refund && e.Start <= b && e.End >= a:
					sum -= float64(e.Cost)
				case e.Op == accuracy.Take && e.Passed && e.Start >= a && e.End <= b:
					sum, any = sum+float64(e.Cost), true
				default:
				}
			}
			if any {
				worst = max(worst, sum)
			}
		}
	}
	return worst
}

// bruteMissing is the most that may be missing from a bucket that was full at first, at some time within a call.
func bruteMissing(r *accuracy.Record, at *accuracy.Entry, o accuracy.Options) float64 {
	l := r.Buckets[at.Bucket].Limits
	var possible []accuracy.Entry
	times := []int64{at.Start}
	for _, e := range r.Entries {
		if e.Bucket == at.Bucket && e.Op == accuracy.Take && e.Passed {
			possible = append(possible, e)
			if e.Start >= at.Start && e.Start <= at.End {
				times = append(times, e.Start)
			}
		}
	}
	most := 0.0
	for _, now := range times {
		since := []int64{now}
		for _, e := range possible {
			if e.End <= now {
				since = append(since, e.End)
			}
		}
		if l.Kind == algorithm.SlidingLog {
			since = []int64{now - int64(float64(l.Window)*1000*(1+o.Drift)) - int64(o.Step)}
		}
		for _, s := range since {
			sum := -l.Rate / 1000 * (1 - o.Drift) * float64(now-s)
			for _, e := range possible {
				if e.Start <= now && e.End >= s {
					sum += float64(e.Cost)
				}
			}
			most = max(most, sum)
		}
	}
	return most
}

func kinds(v *accuracy.Verdict) []accuracy.Kind {
	var all []accuracy.Kind
	for _, f := range v.Findings {
		all = append(all, f.Kind)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
