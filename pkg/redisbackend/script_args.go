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
// have one hash tag. The keys are those of the buckets, not copies. If open, what is taken may yet be undone.
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
	if open && k.Op == ratelimit.Take {
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

// readReply turns the script's reply into the results of buckets[i] for i in at. An error means that the reply is none of
// the script's, or an error of its own; then no result is touched.
func readReply(reply any, buckets []ratelimit.Bucket, at []int, results []ratelimit.Result) error {
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
	if !sound(records, buckets, at) {
		return errReplyShape
	}
	for _, i := range at {
		b := &buckets[i]
		if b.Limits.Kind == algorithm.SlidingLog {
			results[i] = readLog(records, b)
			untilSettled(&results[i], records[0]/recordMarks)
			records = records[logSize:]
			continue
		}
		results[i] = readTokens(records, b)
		untilSettled(&results[i], records[0]/recordMarks)
		records = records[tokensSize:]
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

// sound reports whether records has one for each bucket.
func sound(records string, buckets []ratelimit.Bucket, at []int) bool {
	for _, i := range at {
		size := tokensSize
		if buckets[i].Limits.Kind == algorithm.SlidingLog {
			size = logSize
		}
		if len(records) < size {
			return false
		}
		if kind := records[0] % recordMarks; kind < recordDone || kind > recordUncharged {
			return false
		}
		records = records[size:]
	}
	return records == ""
}

// float is the n-th number of a record.
func float(record string, n int) float64 {
	s := record[1+8*n : 9+8*n]
	return math.Float64frombits(uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)
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
	default:
		r.Remaining = b.Limits.Capacity
	}
	return r
}

// readLog reads what the script says of a sliding log: the entries in the window after the call, the stamp of the oldest
// of them, a note, and the bucket's clock. The note is the stamp of the last entry that must leave (denied), that of the new
// entries (a take), or how many were added (force).
func readLog(record string, b *ratelimit.Bucket) ratelimit.Result {
	now := int64(float(record, 3))
	r := start(record, b, now)
	r.Remaining = max(0, b.Limits.Capacity-float(record, 0))
	if oldest := int64(float(record, 1)); oldest >= 0 {
		r.Reset = duration(oldest + b.Limits.Window - now)
	}
	note := float(record, 2)
	switch {
	case b.Op == ratelimit.Force:
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
