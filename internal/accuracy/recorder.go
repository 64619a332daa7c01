package accuracy

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/envoy-rls/envoy-rls/pkg/ratelimit"
)

// Recorder collects what callers see. It is safe for concurrent use; its workers are not, each has a goroutine of its own.
type Recorder struct {
	clock   *Clock
	buckets []Bucket

	mu      sync.Mutex // guards what follows
	workers []*Worker
	faults  []Fault
	added   map[string]uint32 // buckets by key, once one was added
}

// NewRecorder makes a recorder of calls on these buckets, which entries name by their index.
func NewRecorder(buckets []Bucket) *Recorder { return &Recorder{clock: NewClock(), buckets: buckets} }

// Now is the time on the recorder's clock, in nanoseconds.
func (r *Recorder) Now() int64 { return r.clock.Now() }

// Fault notes what happened to the store.
func (r *Recorder) Fault(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// Bucket finds a bucket by its key, or adds it. An error says that it has other limits than before.
func (r *Recorder) Bucket(b Bucket) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.added == nil {
		r.added = map[string]uint32{}
		for i, known := range r.buckets {
			r.added[known.Key] = uint32(i)
		}
	}
	at, ok := r.added[b.Key]
	if !ok {
		at = uint32(len(r.buckets))
		r.added[b.Key] = at
		r.buckets = append(r.buckets, b)
	}
	if known := r.buckets[at]; known.Limits != b.Limits {
		return 0, fmt.Errorf("bucket %s: its limits were %+v, and are %+v", b.Key, known.Limits, b.Limits)
	}
	return at, nil
}

// Worker makes a worker. Its entries are part of the record.
func (r *Recorder) Worker() *Worker {
	w := &Worker{recorder: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.workers = append(r.workers, w)
	return w
}

// Record returns what all workers have noted. They must have ended.
func (r *Recorder) Record() *Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := &Record{Buckets: slices.Clone(r.buckets), Faults: slices.Clone(r.faults)}
	total := 0
	for _, w := range r.workers {
		for _, chunk := range w.chunks {
			total += len(chunk)
		}
	}
	out.Entries = make([]Entry, 0, total)
	calls := uint64(0)
	for _, w := range r.workers {
		for _, chunk := range w.chunks {
			for _, e := range chunk {
				e.Call += calls
				out.Entries = append(out.Entries, e)
			}
		}
		calls += w.calls
	}
	return out
}

// Worker notes calls one after the other, each in some 20 ns: nothing that is noted is ever moved.
type Worker struct {
	recorder *Recorder
	chunks   [][]Entry
	calls    uint64
	at       map[string]uint32 // buckets by key, for Acquire
}

const chunkEntries = 4096

// Now is when a call begins.
func (w *Worker) Now() int64 { return w.recorder.Now() }

// Note notes a call that began at start and has just been answered. It fills in Start, End and Call of the entries, one for each bucket.
func (w *Worker) Note(start int64, entries ...Entry) {
	end := w.Now()
	for _, e := range entries {
		e.Start, e.End, e.Call = start, end, w.calls
		n := len(w.chunks)
		if n == 0 || len(w.chunks[n-1]) == chunkEntries {
			w.chunks = append(w.chunks, make([]Entry, 0, chunkEntries))
			n++
		}
		w.chunks[n-1] = append(w.chunks[n-1], e)
	}
	w.calls++
}

// Acquire has a store decide, and notes it. The keys of the buckets must be among the recorder's. Undo is not noted: whoever undoes by hand
// knows what is to be expected.
func (w *Worker) Acquire(ctx context.Context, store ratelimit.Store, buckets []ratelimit.Bucket) []ratelimit.Result {
	if w.at == nil {
		w.at = map[string]uint32{}
		for i, b := range w.recorder.buckets {
			w.at[b.Key] = uint32(i)
		}
	}
	start := w.Now()
	results := store.Acquire(ctx, buckets, nil)
	entries := make([]Entry, 0, len(buckets))
	passed := true
	for i := range buckets {
		b, r := &buckets[i], &results[i]
		if b.Op == ratelimit.Undo || b.Shadow {
			continue
		}
		passed = passed && !(b.Op.Deniable() && (r.Err != nil || r.Outcome != ratelimit.Admitted))
		entries = append(entries, entryOf(b, r, w.at[b.Key.String()]))
	}
	for i := range entries {
		entries[i].Passed = passed
	}
	w.Note(start, entries...)
	return results
}

// entryOf is what a result says.
func entryOf(b *ratelimit.Bucket, r *ratelimit.Result, at uint32) Entry {
	e := Entry{Bucket: at, Cost: b.Cost, Op: OpOf(b.Op), Source: sourceOf(r.Source), Left: r.Remaining}
	if b.Op == ratelimit.Reset {
		e.Cost = 0
	}
	switch {
	case r.Err != nil:
		e.Outcome = Unknown
	case r.Outcome == ratelimit.Admitted:
		e.Outcome = Admitted
	case r.Outcome == ratelimit.Denied:
		e.Outcome = Denied
		if !r.Tentative {
			e.Wait = int64(r.Wait)
		}
	default:
		e.Outcome = Unasked
	}
	if e.Outcome == Unknown || e.Outcome == Unasked || e.Source != FromStore {
		e.Left = math.NaN()
	}
	return e
}

// OpOf is what an operation of a store is in a record.
func OpOf(op ratelimit.Op) Op {
	switch op {
	case ratelimit.Peek:
		return Peek
	case ratelimit.Refund:
		return Refund
	case ratelimit.Force:
		return Force
	case ratelimit.Reset, ratelimit.Put:
		return Reset
	default:
		return Take
	}
}

func sourceOf(s ratelimit.Source) Source {
	switch s {
	case ratelimit.FromCache:
		return FromCache
	case ratelimit.FromLocal:
		return FromLocal
	case ratelimit.FromOpen:
		return FromOpen
	case ratelimit.FromClosed:
		return FromClosed
	case ratelimit.FromMissingKey, ratelimit.FromNever, ratelimit.FromBlocked:
		return FromNever
	default:
		return FromStore
	}
}

// SourceOf is the source that an answer names, such as in its metadata; the store's if it names none.
func SourceOf(name string) Source {
	for s := ratelimit.FromStore; s <= ratelimit.FromBlocked; s++ {
		if s.String() == name {
			return sourceOf(s)
		}
	}
	return FromStore
}
