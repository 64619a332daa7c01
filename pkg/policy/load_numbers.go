package policy

import (
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

var refills = []choice[Unit]{
	{"refillPerSecond", PerSecond},
	{"refillPerMinute", PerMinute},
	{"refillPerHour", PerHour},
	{"refillPerDay", PerDay},
}

const (
	bucketHint = "a token-bucket has capacity and refillPerSecond, refillPerMinute, refillPerHour or refillPerDay"
	logHint    = "a sliding-log has limit and window"
)

// written is a number as it stands in a file.
type written struct {
	value  float64
	field  field
	exists bool
	valid  bool
}

// numbers are those of a policy, or of an override.
type numbers struct {
	capacity, refill, overdraft, limit, window written
	unit                                       Unit
}

// number reads a field as a number. false: absent, or a fault was noted.
func (l *loader) number(o *object, name string, whole bool) (float64, field, bool) {
	text, f, ok := l.scalar(o, name, "a number")
	if !ok {
		return 0, f, false
	}
	value, message, hint := parseNumber(text, whole)
	if message == "" && isQuoted(f.value) {
		message, hint = "must be a number, not text", "write "+text+" without quotes"
	}
	if message != "" {
		l.fault(f.pos, hint, "%s %s", name, message)
		return 0, f, false
	}
	return value, f, true
}

func (l *loader) written(o *object, name string, whole bool) written {
	value, f, ok := l.number(o, name, whole)
	return written{value: value, field: f, exists: o.has(name), valid: ok}
}

// numbers reads all numbers of o, each by itself.
func (l *loader) numbers(o *object) numbers {
	n := numbers{
		capacity:  l.written(o, "capacity", true),
		overdraft: l.written(o, "overdraft", true),
		limit:     l.written(o, "limit", true),
		window:    l.window(o),
	}
	for _, r := range refills {
		w := l.written(o, r.word, false)
		switch {
		case !w.exists:
		case n.refill.exists:
			l.fault(w.field.key, "write one of the two", "%s is written as well as %s", r.word, n.refill.field.name)
		default:
			n.refill, n.unit = w, r.means
		}
	}
	if n.refill.valid && n.refill.value <= 0 {
		n.refill.valid = false
		l.fault(n.refill.field.pos, "to deny every call write capacity: 0", "%s must be more than 0", n.refill.field.name)
	}
	return n
}

// window reads the field window in microseconds.
func (l *loader) window(o *object) written {
	text, f, ok := l.scalar(o, "window", "a time")
	w := written{field: f, exists: o.has("window"), valid: ok}
	if !ok {
		return w
	}
	micros, message, hint := parseWindow(text)
	if w.value = float64(micros); message != "" {
		w.valid = false
		if plain := plainWindow(text); plain != "" {
			hint = "write " + plain
		}
		l.fault(f.pos, hint, "window %q %s", text, message)
	}
	return w
}

// over gives n with the numbers that an override writes.
func (n numbers) over(o numbers) numbers {
	for _, w := range []struct{ base, new *written }{
		{&n.capacity, &o.capacity},
		{&n.overdraft, &o.overdraft},
		{&n.limit, &o.limit},
		{&n.window, &o.window},
	} {
		if w.new.exists {
			*w.base = *w.new
		}
	}
	if o.refill.exists {
		n.refill, n.unit = o.refill, o.unit
	}
	return n
}

// policyNumbers reads the algorithm, its numbers and the overrides of them.
func (l *loader) policyNumbers(p *Policy, o *object) {
	l.missing(o, "algorithm", "write algorithm: token-bucket or sliding-log")
	kind := choose(l, o, "algorithm", algorithms)
	n := l.numbers(o)
	l.belong(p, o, kind)
	switch kind {
	case algorithm.TokenBucket:
		l.missing(o, "capacity", bucketHint)
		l.missingRefill(o, n)
	case algorithm.SlidingLog:
		l.missing(o, "limit", logHint)
		l.missing(o, "window", logHint)
	default:
	}
	p.Numbers = l.inForce(p, kind, n, n)
	if f, ok := o.fields["overrides"]; ok {
		p.Overrides = l.overrides(p, f, kind, n)
	}
}

func (l *loader) missingRefill(o *object, n numbers) {
	for _, r := range refills {
		if o.meant[r.word] {
			return
		}
	}
	if !n.refill.exists {
		l.fault(o.pos, bucketHint, "%s needs a refill", o.what)
	}
}

// belong refuses fields that mean nothing to the algorithm or to the way of charging.
func (l *loader) belong(p *Policy, o *object, kind algorithm.Kind) {
	foreign, name, hint := []string(nil), "", ""
	switch kind {
	case algorithm.TokenBucket:
		foreign, name, hint = []string{"limit", "window"}, "token-bucket", bucketHint
	case algorithm.SlidingLog:
		foreign, name, hint = []string{"capacity", "overdraft", "advertise"}, "sliding-log", logHint
		for _, r := range refills {
			foreign = append(foreign, r.word)
		}
		if f, ok := o.fields["charge"]; ok && p.Charge == Postpaid {
			l.fault(f.key, "", "charge: postpaid does not go with a sliding-log")
		}
	default:
		return
	}
	for _, f := range foreign {
		if o.has(f) {
			l.fault(o.fields[f].key, hint, "%s does not go with a %s", f, name)
		}
	}
	if f, ok := o.fields["overdraft"]; ok && kind == algorithm.TokenBucket && p.Charge != Postpaid && !o.meant["charge"] {
		l.fault(f.key, "write charge: postpaid or leave overdraft out", "overdraft goes with charge: postpaid only")
	}
}

// inForce makes what a bucket is decided by of all numbers that apply to it; those in changed were written by the policy or override
// that is being read. The result is zero unless all numbers that the algorithm needs are valid.
func (l *loader) inForce(p *Policy, kind algorithm.Kind, all, changed numbers) Numbers {
	switch {
	case kind == algorithm.SlidingLog && all.limit.valid && all.window.valid:
		return Numbers{Limits: algorithm.Limits{Kind: kind, Capacity: all.limit.value, Window: int64(all.window.value)}}
	case kind != algorithm.TokenBucket || !all.capacity.valid || !all.refill.valid:
		return Numbers{}
	}
	n := Numbers{Refill: all.refill.value, Unit: all.unit}
	n.Limits = algorithm.Limits{Kind: kind, Capacity: all.capacity.value, Rate: algorithm.RatePer(time.Duration(n.Unit), n.Refill)}
	if p.Charge == Postpaid {
		if n.Overdraft = n.Capacity; all.overdraft.valid {
			n.Overdraft = all.overdraft.value
		}
	}
	for _, w := range []written{changed.refill, changed.capacity, changed.overdraft} {
		if w.exists {
			l.fullInTime(n, w.field)
			break
		}
	}
	if p.Advertise == AdvertiseSustained && changed.refill.exists && !isWhole(n.Refill) {
		l.fault(changed.refill.field.pos, "write the refill per a longer unit",
			"%s must be a whole number with advertise: sustained", changed.refill.field.name)
	}
	return n
}

// fullInTime refuses a bucket that would take too long to be full, debt included; f is the number to blame.
func (l *loader) fullInTime(n Numbers, f field) {
	if n.Capacity+n.Overdraft > n.Rate*float64(maxSpan.Microseconds()) {
		l.fault(f.pos, "raise the refill or lower the capacity",
			"%s: at this refill an empty bucket needs more than ten years to be full", f.name)
	}
}
