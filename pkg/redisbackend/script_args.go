package redisbackend

import (
	"encoding/binary"
	"errors"
	"math"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// What the first byte of a record says.
const (
	recordDone      = 1
	recordDenied    = 2
	recordUncharged = 3 // admitted, but others of the call were not, or it was a peek

	recordMarks = 16 // the unit of the bucket's mark, which is in the bits above
)

const (
	shadowBit  = 8
	openBit    = 16
	mostCost   = 1 << 53 // more than any bucket can hold or owe, so that it stands for all that is above it
	mostArgs   = 2 + 5*8
	tokensSize = 1 + 3*8
	logSize    = 1 + 4*8
)

var (
	errReplyShape = errors.New("reply of the script: not the records that were asked for")
	errReplyType  = errors.New("reply of the script: not a string")
)

// appendArgs appends what comes after EVALSHA and the script's name to have it decide on buckets[i] for i in at, all of which
// have one hash tag. The keys are those of the buckets, not copies. If open, all that is taken may yet be undone.
func appendArgs(args []any, buckets []ratelimit.Bucket, at []int, open bool) []any {
	args = append(args, len(at))
	for _, i := range at {
		args = append(args, buckets[i].Key.Bytes())
	}
	packed := make([]byte, 0, len(at)*mostArgs)
	for _, i := range at {
		start := len(packed)
		packed = appendBucket(packed, &buckets[i], open)
		args = append(args, packed[start:len(packed):len(packed)])
	}
	return args
}

// appendBucket packs what acquire.lua wants to know about a bucket.
func appendBucket(b []byte, k *ratelimit.Bucket, open bool) []byte {
	op := byte(k.Op)
	if (open || k.Undoable) && k.Op == ratelimit.Take {
		op |= openBit
	}
	if k.Shadow {
		op |= shadowBit
	}
	pace := k.Limits.Rate
	if k.Limits.Kind == algorithm.SlidingLog {
		pace = float64(k.Limits.Window)
	}
	b = append(b, byte(k.Limits.Kind), op)
	b = appendFloat(b, float64(min(k.Cost, mostCost)))
	b = appendFloat(b, k.Limits.Capacity)
	b = appendFloat(b, pace)
	switch k.Op {
	case ratelimit.Undo:
		b = appendFloat(b, k.Before)
		b = appendFloat(b, float64(k.At))
	case ratelimit.Force:
		b = appendFloat(b, k.Overdraft)
	default:
	}
	return b
}

func appendFloat(b []byte, f float64) []byte {
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(f))
}

// place is which of several identical calls, in the order in which they came, a call is that one run of the script decided. The only one is
// place{1, 1}.
type place struct{ turn, of int }

// readReply turns the script's reply into the results of buckets[i] for i in at. An error means that the reply is none of
// the script's, or an error of its own; then no result is touched.
func readReply(reply any, p place, buckets []ratelimit.Bucket, at []int, results []ratelimit.Result) error {
	var records string
	switch r := reply.(type) {
	case string:
		records = r
	case []byte:
		records = string(r)
	case error:
		return r
	default:
		return errReplyType
	}
	records, ok := recordsOf(records, p, buckets, at)
	if !ok {
		return errReplyShape
	}
	for _, i := range at {
		b := &buckets[i]
		if b.Limits.Kind == algorithm.SlidingLog {
			results[i] = readLog(records, b)
		} else {
			results[i] = readTokens(records, b)
		}
		if records[0]%recordMarks == recordDone && p.turn > 1 {
			afterOthers(&results[i], b, float64(p.turn-1)*float64(b.Cost))
		}
		untilSettled(&results[i], records[0]/recordMarks)
		if b.Shadow && takes(b.Op) && records[0]%recordMarks != recordDone {
			results[i].At = 0 // only looked at
		}
		records = records[recordSize(b):]
	}
	return nil
}

// untilSettled marks a denial that an undo may overtake, and shortens its wait to the end of the bucket's mark. That is given in steps
// from the time of the denial.
func untilSettled(r *ratelimit.Result, mark byte) {
	if left := duration(algorithm.MarkAfter(int64(mark), r.At).Left(r.At)); left > 0 && r.Wait > 0 {
		r.Wait, r.Tentative = min(r.Wait, left), true
	}
}

func recordSize(b *ratelimit.Bucket) int {
	if b.Limits.Kind == algorithm.SlidingLog {
		return logSize
	}
	return tokensSize
}

// recordsOf finds the records of the call at a place.
func recordsOf(reply string, p place, buckets []ratelimit.Bucket, at []int) (records string, ok bool) {
	if p.of == 1 {
		n := soundSize(reply, buckets, at)
		return reply, n > 0 && n == len(reply)
	}
	const head = 8 // how many were admitted
	if len(reply) < head {
		return "", false
	}
	admitted := math.Float64frombits(word(reply))
	if !(admitted >= 0 && admitted <= float64(p.of)) {
		return "", false
	}
	first := reply[head:]
	n := soundSize(first, buckets, at)
	if n == 0 {
		return "", false
	}
	last := first[n:]
	if admitted == 0 || int(admitted) == p.of {
		return first, last == ""
	}
	if soundSize(last, buckets, at) != len(last) || last == "" {
		return "", false
	}
	if p.turn > int(admitted) {
		return last, true
	}
	return first, true
}

// soundSize is how long the records at the beginning are that have one for each bucket. 0: there are none.
func soundSize(records string, buckets []ratelimit.Bucket, at []int) (n int) {
	for _, i := range at {
		size := recordSize(&buckets[i])
		if len(records)-n < size {
			return 0
		}
		if kind := records[n] % recordMarks; kind < recordDone || kind > recordUncharged {
			return 0
		}
		n += size
	}
	return n
}

// afterOthers makes the result of the first of several takes that of one before which others were charged. Tokens before a take are
// multiples of a power of two that divides 1, and grow no larger, so that all differences are exact.
func afterOthers(r *ratelimit.Result, b *ratelimit.Bucket, charged float64) {
	r.Remaining -= charged
	if b.Limits.Kind == algorithm.TokenBucket {
		r.Before -= charged
	}
}

// float is the n-th number of a record.
func float(record string, n int) float64 {
	return math.Float64frombits(word(record[1+8*n:]))
}

// word is the number in the first 8 bytes.
func word(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}

// start is what both algorithms begin a result with.
func start(record string, b *ratelimit.Bucket, now int64) ratelimit.Result {
	r := ratelimit.Result{Outcome: ratelimit.Admitted, Source: ratelimit.FromStore, At: now}
	if record[0]%recordMarks == recordDenied {
		r.Outcome = ratelimit.Denied
		if float64(b.Cost) > b.Limits.Capacity {
			r.Source = ratelimit.FromNever
		}
	}
	return r
}

// readTokens does again what the script did to a token bucket. The record is the tokens at the last change, how many
// microseconds passed since, and the bucket's clock.
func readTokens(record string, b *ratelimit.Bucket) ratelimit.Result {
	now := int64(float(record, 2))
	s := algorithm.Tokens{Level: float(record, 0), Clock: algorithm.Clock{Last: now - int64(float(record, 1))}}
	r := start(record, b, now)
	have := s.Remaining(b.Limits, now)
	switch b.Op {
	case ratelimit.Take, ratelimit.Peek:
		r.Before, r.Remaining = have, have
		switch record[0] % recordMarks {
		case recordDone:
			r.Remaining = have - float64(b.Cost)
		case recordDenied:
			r.Wait = duration(s.Wait(b.Limits, b.Cost, now))
		default:
		}
		if r.Source == ratelimit.FromNever {
			r.Wait = 0
		}
	case ratelimit.Undo:
		r.Remaining = s.Undo(b.Limits, b.Cost, b.Before, b.At, now).Level
	case ratelimit.Refund:
		r.Remaining = s.Refund(b.Limits, b.Cost, now).Level
	case ratelimit.Force:
		s, r.Uncharged = s.Force(b.Limits, b.Cost, b.Overdraft, now)
		r.Remaining = s.Remaining(b.Limits, now)
	case ratelimit.Put:
		s, r.Uncharged = algorithm.NewTokens(b.Limits, now).Force(b.Limits, b.Cost, 0, now)
		r.Remaining = s.Level
	default:
		r.Remaining = b.Limits.Capacity
	}
	return r
}

// readLog reads what the script says of a sliding log: the entries in the window after the call, the stamp of the oldest
// of them, a note, and the bucket's clock. The note is the stamp of the last entry that must leave (denied), that of the new
// entries (a take), or how many were added (force and put).
func readLog(record string, b *ratelimit.Bucket) ratelimit.Result {
	now := int64(float(record, 3))
	r := start(record, b, now)
	r.Remaining = max(0, b.Limits.Capacity-float(record, 0))
	if oldest := int64(float(record, 1)); oldest >= 0 {
		r.Reset = duration(oldest + b.Limits.Window - now)
	}
	note := float(record, 2)
	switch {
	case b.Op == ratelimit.Force || b.Op == ratelimit.Put:
		r.Uncharged = b.Cost - uint64(note)
	case r.Source == ratelimit.FromNever:
	case record[0]%recordMarks == recordDenied:
		r.Wait = duration(int64(note) + b.Limits.Window - now)
	case record[0]%recordMarks == recordDone && b.Op == ratelimit.Take:
		r.At = int64(note)
	}
	return r
}

// duration of microseconds, as long as one can be.
func duration(us int64) time.Duration {
	const most = math.MaxInt64 / int64(time.Microsecond)
	return time.Duration(min(us, most)) * time.Microsecond
}
