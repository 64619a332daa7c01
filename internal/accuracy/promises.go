package accuracy

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// judgePromises looks for calls that were made as late as an earlier denial had said, with nobody else calling meanwhile, and were denied all
// the same.
func (c *checker) judgePromises(h *history, j *judgement) {
	disturbed := newDisturbances(h)
	promised := map[float64]promise{} // the earliest by cost
	for _, d := range h.denials {
		e := &c.record.Entries[d.entry]
		last := disturbed.before(d.end)
		if p, ok := promised[d.units]; ok && p.made > last && p.due <= d.start {
			j.counts.BrokenPromises++
			if j.first(BrokenPromise) {
				f := c.point(h, BrokenPromise, d, 0, 0)
				f.addCall(c.record.Entries[p.entry].Call)
				f.Got, f.Bound = float64(d.start-p.answered)/1e9, float64(c.record.Entries[p.entry].Wait)/1e9
				j.findings = append(j.findings, f)
			}
		}
		if e.Wait == 0 {
			continue
		}
		due := d.end + int64(float64(e.Wait)*(1+c.Drift)) + int64(c.Step)
		p := promise{made: d.start, answered: d.end, due: due, entry: d.entry}
		if e.Source == FromCache {
			p.made -= int64(cacheAge)
		}
		if old, ok := promised[d.units]; !ok || old.made <= last || due < old.due && p.made > last {
			promised[d.units] = p
		}
	}
}

// cacheAge is how old what a cache knows may be: it promises what holds if nobody has called since the store was asked last.
const cacheAge = time.Second

// promise is what a denial said.
type promise struct {
	// made is since when nobody else may have called.
	made, answered, due int64
	entry               int32
}

// disturbances are all that may have taken from a bucket.
type disturbances struct {
	starts []int64
	until  []int64 // the latest time at which one of those up to here has settled
}

func newDisturbances(h *history) *disturbances {
	all := slices.Concat(h.possible, h.held)
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	d := &disturbances{}
	until := int64(-latest)
	for _, s := range all {
		until = max(until, s.settled)
		d.starts, d.until = append(d.starts, s.start), append(d.until, until)
	}
	return d
}

// before is when the last of those that had begun at a time had settled.
func (d *disturbances) before(time int64) int64 {
	n := sort.Search(len(d.starts), func(i int) bool { return d.starts[i] > time })
	if n == 0 {
		return -latest
	}
	return d.until[n-1]
}
