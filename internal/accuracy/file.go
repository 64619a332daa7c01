package accuracy

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	"github.com/envoy-rls/envoy-rls/pkg/algorithm"
)

// A record in a file is lines of JSON: the first one is the header, each other one an entry, in any order. docs/accuracy.md describes it for people.

const fileVersion = 1

type header struct {
	Accuracy int          `json:"accuracy"` // the version of the format
	Buckets  []fileBucket `json:"buckets"`
	Faults   []fileFault  `json:"faults,omitempty"`
}

type fileBucket struct {
	Key       string  `json:"key"`
	Algorithm string  `json:"algorithm"`
	Capacity  float64 `json:"capacity"`            // a log's limit
	PerSecond float64 `json:"perSecond,omitempty"` // the refill
	Window    float64 `json:"window,omitempty"`    // in seconds
	Group     string  `json:"group,omitempty"`
	Fresh     bool    `json:"fresh,omitempty"`
}

type fileFault struct {
	Why        string   `json:"why"`
	From       int64    `json:"from"`
	To         int64    `json:"to"`
	Buckets    []uint32 `json:"buckets,omitempty"`
	Units      float64  `json:"units,omitempty"`
	Capacities float64  `json:"capacities,omitempty"`
}

type fileEntry struct {
	Call    uint64   `json:"call"`
	Start   int64    `json:"start"`
	End     int64    `json:"end"`
	Bucket  uint32   `json:"bucket"`
	Op      string   `json:"op"`
	Cost    uint64   `json:"cost"`
	Outcome string   `json:"outcome"`
	Passed  bool     `json:"passed"`
	Source  string   `json:"source"`
	Left    *float64 `json:"left,omitempty"`
	Wait    int64    `json:"wait,omitempty"`
}

// The words for what is a number in an entry; the first of each is not valid.
var (
	opWords      = []string{"", "take", "peek", "refund", "force", "reset"}
	outcomeWords = []string{"", "unknown", "admitted", "denied", "unasked"}
	sourceWords  = []string{"", "store", "cache", "local", "open", "closed", "never"}
)

// Write writes the record, which must make sense, as lines of JSON.
func (r *Record) Write(out io.Writer) error {
	if err := r.validate(); err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<16)
	h := header{Accuracy: fileVersion}
	for _, b := range r.Buckets {
		h.Buckets = append(h.Buckets, fileBucket{
			Key: b.Key, Algorithm: b.Limits.Kind.String(), Capacity: b.Limits.Capacity, PerSecond: b.Limits.Rate * 1e6,
			Window: float64(b.Limits.Window) / 1e6, Group: b.Group, Fresh: b.Fresh,
		})
	}
	for _, f := range r.Faults {
		h.Faults = append(h.Faults, fileFault(f))
	}
	if err := json.NewEncoder(w).Encode(h); err != nil {
		return err
	}
	var line []byte
	for i := range r.Entries {
		line = r.Entries[i].append(line[:0])
		if _, err := w.Write(line); err != nil {
			return err
		}
	}
	return w.Flush()
}

// append appends the entry's line. Made by hand, since there are millions of them.
func (e *Entry) append(b []byte) []byte {
	number := func(name string, n int64) { b = strconv.AppendInt(append(b, name...), n, 10) }
	word := func(name, word string) { b = append(append(append(append(b, name...), '"'), word...), '"') }
	b = strconv.AppendUint(append(b, `{"call":`...), e.Call, 10)
	number(`,"start":`, e.Start)
	number(`,"end":`, e.End)
	number(`,"bucket":`, int64(e.Bucket))
	word(`,"op":`, opWords[e.Op])
	number(`,"cost":`, int64(e.Cost))
	word(`,"outcome":`, outcomeWords[e.Outcome])
	b = strconv.AppendBool(append(b, `,"passed":`...), e.Passed)
	word(`,"source":`, sourceWords[e.Source])
	if finite(e.Left) {
		b = strconv.AppendFloat(append(b, `,"left":`...), e.Left, 'f', -1, 64)
	}
	if e.Wait != 0 {
		number(`,"wait":`, e.Wait)
	}
	return append(b, '}', '\n')
}

// longestLine bounds a line of a file: the header has all buckets.
const longestLine = 256 << 20

// Read reads what Write has written, or somebody else in that form. The error names the line.
func Read(in io.Reader) (*Record, error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<16), longestLine)
	if !lines.Scan() {
		return nil, errors.Join(errors.New("line 1: no header"), lines.Err())
	}
	r, err := readHeader(lines.Bytes())
	if err != nil {
		return nil, fmt.Errorf("line 1: %w", err)
	}
	for n := 2; lines.Scan(); n++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		e, err := readEntry(lines.Bytes())
		if err == nil {
			err = e.validate(len(r.Buckets))
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		r.Entries = append(r.Entries, e)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return r, r.validate()
}

func readHeader(line []byte) (*Record, error) {
	var h header
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, err
	}
	if h.Accuracy != fileVersion {
		return nil, fmt.Errorf("not a record of version %d: its header begins with {\"accuracy\":%d", fileVersion, fileVersion)
	}
	r := &Record{}
	for _, b := range h.Buckets {
		kind, ok := algorithm.ByName(b.Algorithm)
		if !ok {
			return nil, fmt.Errorf("bucket %s: there is no algorithm %q", b.Key, b.Algorithm)
		}
		l := algorithm.Limits{Kind: kind, Capacity: b.Capacity, Rate: b.PerSecond / 1e6, Window: int64(math.Round(b.Window * 1e6))}
		r.Buckets = append(r.Buckets, Bucket{Key: b.Key, Limits: l, Group: b.Group, Fresh: b.Fresh})
	}
	for _, f := range h.Faults {
		r.Faults = append(r.Faults, Fault(f))
	}
	return r, nil
}

func readEntry(line []byte) (Entry, error) {
	var f fileEntry
	if err := json.Unmarshal(line, &f); err != nil {
		return Entry{}, err
	}
	e := Entry{Call: f.Call, Start: f.Start, End: f.End, Bucket: f.Bucket, Cost: f.Cost, Passed: f.Passed, Wait: f.Wait, Left: math.NaN()}
	if f.Left != nil {
		e.Left = *f.Left
	}
	op, err := wordIn(opWords, f.Op)
	outcome, errOutcome := wordIn(outcomeWords, f.Outcome)
	source, errSource := wordIn(sourceWords, f.Source)
	e.Op, e.Outcome, e.Source = Op(op), Outcome(outcome), Source(source)
	return e, errors.Join(err, errOutcome, errSource)
}

func wordIn(words []string, word string) (int, error) {
	if i := slices.Index(words, word); i > 0 {
		return i, nil
	}
	return 0, fmt.Errorf("%q is none of %q", word, words[1:])
}
