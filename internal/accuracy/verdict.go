package accuracy

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Kind is what a finding is about.
type Kind string

// The kinds of findings.
const (
	TooMuch        Kind = "too much admitted"
	WronglyDenied  Kind = "wrongly denied"
	Split          Kind = "neither all nor none"
	ReadsTooMuch   Kind = "more left than there can be"
	ReadsTooLittle Kind = "less left than there must be"
	BrokenPromise  Kind = "promise not kept"
)

// Finding is something that cannot be. Of each kind a bucket has one: the worst for [TooMuch], else the first.
type Finding struct {
	Kind Kind   `json:"kind"`
	Key  string `json:"key"`
	// Shares says that it is about what instances decided by their shares while the store failed.
	Shares bool `json:"shares,omitempty"`
	// From and To are when, in nanoseconds by the record's clock; Begin is when the record begins.
	From  int64 `json:"from"`
	To    int64 `json:"to"`
	Begin int64 `json:"begin"`
	// Got and Bound are units: what was admitted and could be at most; the cost that was denied and what was there at least; what is left as told
	// and what can be. For a promise, seconds: how long was waited, and how long was told to.
	Got   float64 `json:"got"`
	Bound float64 `json:"bound"`
	// Given is the part of Bound that refunds and faults may have given back.
	Given float64 `json:"given,omitempty"`
	// Calls are the first of the calls that it follows from, and Of is how many there are.
	Calls []uint64 `json:"calls"`
	Of    int      `json:"of"`
}

// mostCalls is how many calls a finding names.
const mostCalls = 12

func (f *Finding) addCall(n uint64) {
	if f.Of++; len(f.Calls) < mostCalls {
		f.Calls = append(f.Calls, n)
	}
}

// String is one line.
func (f *Finding) String() string {
	var what string
	length := time.Duration(f.To - f.From)
	switch f.Kind {
	case TooMuch:
		what = fmt.Sprintf("admitted %v in %s (%v), bound %.3f", f.Got, f.when(), length, f.Bound)
		if f.Given > 0 {
			what += fmt.Sprintf(" with %v that may have been given back", f.Given)
		}
	case WronglyDenied:
		what = fmt.Sprintf("denied a cost of %v in %s, where at least %.3f were there", f.Got, f.when(), f.Bound)
	case Split:
		what = fmt.Sprintf("in %s", f.when())
	case ReadsTooMuch:
		what = fmt.Sprintf("says %.3f in %s, where at most %.3f can be left", f.Got, f.when(), f.Bound)
	case ReadsTooLittle:
		what = fmt.Sprintf("says %.3f in %s, where at least %.3f must be left", f.Got, f.when(), f.Bound)
	case BrokenPromise:
		what = fmt.Sprintf("denied again in %s, %.6f s after it was told to wait for %.6f s, and nobody else called", f.when(), f.Got, f.Bound)
	default:
	}
	calls := strings.Trim(fmt.Sprint(f.Calls), "[]")
	if f.Of > len(f.Calls) {
		calls += fmt.Sprintf(" and %d more", f.Of-len(f.Calls))
	}
	return fmt.Sprintf("%s: %s: %s; calls %s", named(f.Key, f.Shares), f.Kind, what, calls)
}

// named is a bucket, or what shares did with it.
func named(key string, shares bool) string {
	if shares {
		return key + " by shares"
	}
	return key
}

// when is the interval in seconds from the beginning of the record.
func (f *Finding) when() string {
	return fmt.Sprintf("[%.6f s, %.6f s]", float64(f.From-f.Begin)/1e9, float64(f.To-f.Begin)/1e9)
}

// Counts say what was judged, and how much of it was wrong.
type Counts struct {
	Denials        int `json:"denials"`       // by the store or a cache
	WrongDenials   int `json:"wrongDenials"`  // of them
	Readings       int `json:"readings"`      // of what is left
	WrongReadings  int `json:"wrongReadings"` // of them
	SplitCalls     int `json:"splitCalls"`
	BrokenPromises int `json:"brokenPromises"`
}

// Peak is the interval in which a bucket admitted most beyond its refill.
type Peak struct {
	Key      string  `json:"key"`
	Shares   bool    `json:"shares,omitempty"` // as in [Finding]
	From     int64   `json:"from"`
	To       int64   `json:"to"`
	Admitted float64 `json:"admitted"`
	Bound    float64 `json:"bound"`
}

// Verdict is what came out.
type Verdict struct {
	Calls    int       `json:"calls"`
	Admitted int       `json:"admitted"`
	Denied   int       `json:"denied"`
	Unknown  int       `json:"unknown"` // calls that failed
	Buckets  int       `json:"buckets"`
	Findings []Finding `json:"findings"`
	Counts
	// Fullest is, of the peaks of all buckets, the one that came nearest to its bound, or went farthest beyond.
	Fullest Peak `json:"fullest"`
}

// Err is nil if nothing was found, else an error that names the first findings.
func (v *Verdict) Err() error {
	if len(v.Findings) == 0 {
		return nil
	}
	var lines []string
	for i := range v.Findings {
		if lines = append(lines, v.Findings[i].String()); len(lines) == mostLines {
			break
		}
	}
	return errors.New(v.total() + "\n" + strings.Join(lines, "\n"))
}

const mostLines = 20

func (v *Verdict) total() string {
	return fmt.Sprintf("%d findings: %d of %d denials wrong, %d of %d readings, %d calls neither all nor none, %d promises broken",
		len(v.Findings), v.WrongDenials, v.Denials, v.WrongReadings, v.Readings, v.SplitCalls, v.BrokenPromises)
}

// WriteText writes the verdict for people.
func (v *Verdict) WriteText(out io.Writer) error {
	text := fmt.Sprintf("%d calls on %d buckets: %d admitted, %d denied, %d failed\n", v.Calls, v.Buckets, v.Admitted, v.Denied, v.Unknown)
	if v.Fullest.Bound > 0 {
		text += fmt.Sprintf("fullest: %s admitted %v within %v, bound %.3f\n",
			named(v.Fullest.Key, v.Fullest.Shares), v.Fullest.Admitted, time.Duration(v.Fullest.To-v.Fullest.From), v.Fullest.Bound)
	}
	text += fmt.Sprintf("judged: %d denials, %d readings of what is left\n", v.Denials, v.Readings)
	if err := v.Err(); err != nil {
		text += err.Error() + "\n"
	} else {
		text += "ok: nothing that a store which keeps its limits could not have done\n"
	}
	_, err := io.WriteString(out, text)
	return err
}

// add takes in what came out for one bucket.
func (v *Verdict) add(j judgement) {
	v.Findings = append(v.Findings, j.findings...)
	v.Denials += j.counts.Denials
	v.WrongDenials += j.counts.WrongDenials
	v.Readings += j.counts.Readings
	v.WrongReadings += j.counts.WrongReadings
	v.BrokenPromises += j.counts.BrokenPromises
	if p := j.peak; p.Bound > 0 && (v.Fullest.Bound == 0 || p.Admitted/p.Bound > v.Fullest.Admitted/v.Fullest.Bound) {
		v.Fullest = p
	}
}

// count takes in the entries of one call.
func (v *Verdict) count(entries []Entry) {
	unknown := false
	for i := range entries {
		unknown = unknown || entries[i].Outcome == Unknown
	}
	switch {
	case entries[0].Passed:
		v.Admitted++
	case unknown:
		v.Unknown++
	default:
		v.Denied++
	}
}

// split notes a call that was admitted by some and denied by others.
func (v *Verdict) split(c *checker, from, to int) {
	if v.SplitCalls++; v.SplitCalls > 1 {
		return
	}
	e := &c.record.Entries[from]
	f := c.finding(&c.histories[e.Bucket], Split, e.Start-c.origin, e.End-c.origin)
	for i := from; i < to; i++ {
		if key := c.record.Buckets[c.record.Entries[i].Bucket].Key; i > from {
			f.Key += ", " + key
		}
	}
	f.addCall(e.Call)
	v.Findings = append(v.Findings, f)
}

// first reports whether there is no finding of a kind yet.
func (j *judgement) first(k Kind) bool {
	for i := range j.findings {
		if j.findings[i].Kind == k {
			return false
		}
	}
	return true
}

func (c *checker) finding(h *history, k Kind, from, to int64) Finding {
	return Finding{Kind: k, Key: c.record.Buckets[h.bucket].Key, Shares: h.shares, From: from + c.origin, To: to + c.origin, Begin: c.origin}
}

// point is a finding about one entry.
func (c *checker) point(h *history, k Kind, s span, got, bound float64) Finding {
	f := c.finding(h, k, s.start, s.end)
	f.Got, f.Bound = got, bound
	f.addCall(c.record.Entries[s.entry].Call)
	return f
}
