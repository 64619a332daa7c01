package accuracy

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// Bucket is one bucket that decisions were recorded of.
type Bucket struct {
	// Key names the bucket in reports, and tells which buckets of several records are the same.
	Key string
	// Limits are those in force all the while: a record must not span a change of policy.
	Limits algorithm.Limits
	// Group says which buckets are decided at once, such as those of one slot of a Redis Cluster. A request whose buckets are of several groups
	// may be charged in one of them for a moment before another one denies.
	Group string
	// Fresh says that nobody had used the bucket before the record began, so that it was full.
	Fresh bool
}

// Op is what a decision does with a bucket.
type Op uint8

// The operations.
const (
	Take   Op = iota + 1 // spends the cost, or is denied
	Peek                 // the same, and spends nothing
	Refund               // gives the cost back
	Force                // spends up to the cost, never denied
	Reset                // makes the bucket full, and charges it the cost
)

// Outcome is what a decision said of one bucket.
type Outcome uint8

// The outcomes.
const (
	// Unknown: the call failed. It may have been charged, and may be for Options.Settle more.
	Unknown Outcome = iota + 1
	// Admitted: the bucket has what was asked for.
	Admitted
	// Denied: it has not.
	Denied
	// Unasked: the answer says nothing of this bucket.
	Unasked
)

// Source is who decided.
type Source uint8

// The sources.
const (
	FromStore  Source = iota + 1
	FromCache         // denied, since the store had denied before
	FromLocal         // an instance by its share, while the store failed
	FromOpen          // admitted without a count, while the store failed
	FromClosed        // denied, while the store failed
	FromNever         // denied without a look at the bucket: the cost is above the capacity, a key is missing, or somebody has blocked it
)

// Entry is what a call did with one bucket. A call over several buckets has an entry for each, with the same Call.
type Entry struct {
	// Start and End are when the call was made and when the answer was there: nanoseconds of one clock for the whole record. The decision was
	// made in between.
	Start, End int64
	// Wait is how many nanoseconds after the answer a call of the same cost was promised to be admitted. 0: nothing was promised.
	Wait int64
	// Left is what the bucket said that it has left after the call; whole units, or more exactly. NaN: it was not told.
	Left float64
	// Call numbers the calls of a record from 0.
	Call    uint64
	Cost    uint64
	Bucket  uint32 // in Record.Buckets
	Op      Op
	Outcome Outcome
	Source  Source
	// Passed says that the call as a whole was admitted.
	Passed bool
}

// Fault is something that happened to the store, as whoever recorded knows.
type Fault struct {
	Why string
	// From and To are when, by the clock of the entries. It is over when all of its consequences are, such as charges that are made late.
	From, To int64
	// Buckets are the buckets concerned. Empty: all.
	Buckets []uint32
	// Units is how much each of them may have got back that is not due to it. It counts besides what Capacities says.
	Units float64
	// Capacities is the same in capacities, or limits, of the bucket.
	Capacities float64
}

// Record is what was seen of a store. Entries are in any order.
type Record struct {
	Buckets []Bucket
	Entries []Entry
	Faults  []Fault
}

var errTime = errors.New("the answer is earlier than the call")

// validate finds what the checks cannot work with.
func (r *Record) validate() error {
	for i, b := range r.Buckets {
		if err := b.validate(); err != nil {
			return fmt.Errorf("bucket %d (%s): %w", i, b.Key, err)
		}
	}
	for i := range r.Entries {
		if err := r.Entries[i].validate(len(r.Buckets)); err != nil {
			return fmt.Errorf("entry %d: %w", i, err)
		}
	}
	for i, f := range r.Faults {
		if f.To < f.From {
			return fmt.Errorf("fault %d: %w", i, errTime)
		}
		if !finite(f.Units) || f.Units < 0 || !finite(f.Capacities) || f.Capacities < 0 {
			return fmt.Errorf("fault %d: gives %v units and %v capacities", i, f.Units, f.Capacities)
		}
		for _, b := range f.Buckets {
			if int(b) >= len(r.Buckets) {
				return fmt.Errorf("fault %d: there is no bucket %d", i, b)
			}
		}
	}
	return nil
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func (b *Bucket) validate() error {
	l := b.Limits
	switch {
	case !(l.Capacity >= 0 && l.Capacity < 1e15):
		return fmt.Errorf("a capacity of %v", l.Capacity)
	case l.Kind == algorithm.TokenBucket && l.Rate >= 0 && finite(l.Rate):
		return nil
	case l.Kind == algorithm.SlidingLog && l.Window > 0 && l.Window < math.MaxInt64/int64(time.Microsecond)/4:
		return nil
	default:
		return fmt.Errorf("limits %+v", l)
	}
}

// latest bounds times, so that sums of them do not overflow.
const latest = math.MaxInt64 / 4

func (e *Entry) validate(buckets int) error {
	switch {
	case int(e.Bucket) >= buckets:
		return fmt.Errorf("there is no bucket %d", e.Bucket)
	case e.End < e.Start:
		return errTime
	case e.Start < -latest || e.End > latest || e.Wait < 0 || e.Wait > latest:
		return errors.New("a time is out of range")
	case e.Cost > 1<<53:
		return fmt.Errorf("a cost of %d", e.Cost)
	case e.Op < Take || e.Op > Reset || e.Outcome < Unknown || e.Outcome > Unasked || e.Source < FromStore || e.Source > FromNever:
		return fmt.Errorf("op %d, outcome %d, source %d", e.Op, e.Outcome, e.Source)
	default:
		return nil
	}
}

// Merge puts records of several programs together, which must have used one clock. Buckets with the same key are the same.
func Merge(records ...*Record) (*Record, error) {
	all := &Record{}
	at := map[string]uint32{}
	calls := uint64(0)
	for _, r := range records {
		if err := r.validate(); err != nil {
			return nil, err
		}
		moved, err := all.adopt(r, at)
		if err != nil {
			return nil, err
		}
		next := calls
		for _, e := range r.Entries {
			e.Call += calls
			e.Bucket = moved[e.Bucket]
			next = max(next, e.Call+1)
			all.Entries = append(all.Entries, e)
		}
		calls = next
		for _, f := range r.Faults {
			buckets := f.Buckets
			if len(buckets) == 0 { // all of this record's
				buckets = identity(len(r.Buckets))
			}
			f.Buckets = nil
			for _, b := range buckets {
				f.Buckets = append(f.Buckets, moved[b])
			}
			all.Faults = append(all.Faults, f)
		}
	}
	return all, nil
}

// adopt adds the buckets of another record, and returns where each of them is now.
func (r *Record) adopt(other *Record, at map[string]uint32) ([]uint32, error) {
	moved := make([]uint32, len(other.Buckets))
	for i, b := range other.Buckets {
		known, ok := at[b.Key]
		if !ok {
			known = uint32(len(r.Buckets))
			at[b.Key] = known
			r.Buckets = append(r.Buckets, b)
		}
		mine := &r.Buckets[known]
		if mine.Limits != b.Limits || mine.Group != b.Group {
			return nil, fmt.Errorf("bucket %s: %+v in one record, %+v in another", b.Key, *mine, b)
		}
		mine.Fresh = mine.Fresh && b.Fresh
		moved[i] = known
	}
	return moved, nil
}

func identity(n int) []uint32 {
	all := make([]uint32, n)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}
