package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// step is how much of the time a line of the timeline shows.
const step = 100 * time.Millisecond

// Timeline shows the decisions in steps of 100 ms, by the time at which they were due: by shard and source, how long they took, errors, for how
// much of the step the machine stood still, and what was done.
func (r *Record) Timeline() string {
	shards := r.shards()
	var b strings.Builder
	b.WriteString("s store, c cache, l local, o open, x closed, e error, - none; times in ms, stalled: the machine itself\n")
	fmt.Fprintf(&b, "%7s", "from")
	for _, shard := range shards {
		fmt.Fprintf(&b, " %-14s", fmt.Sprint("shard ", shard))
	}
	fmt.Fprintf(&b, "%7s %7s %7s %6s %7s\n", "p50", "p99", "max", "errors", "stalled")
	first := 0
	for from := time.Duration(0); first < len(r.Decisions); from += step {
		end := first
		for end < len(r.Decisions) && r.Decisions[end].Due < from+step {
			end++
		}
		r.line(&b, from, shards, r.Decisions[first:end])
		first = end
	}
	return b.String()
}

func (r *Record) line(b *strings.Builder, from time.Duration, shards []int, decisions []Decision) {
	counts := map[int]map[string]int{}
	errors := 0
	var times []time.Duration
	for i := range decisions {
		d := &decisions[i]
		if counts[d.Shard] == nil {
			counts[d.Shard] = map[string]int{}
		}
		counts[d.Shard][d.code()]++
		times = append(times, d.Took)
		if d.Err != nil {
			errors++
		}
	}
	fmt.Fprintf(b, "%7d", from.Milliseconds())
	for _, shard := range shards {
		fmt.Fprintf(b, " %-14s", brief(counts[shard]))
	}
	fmt.Fprintf(b, "%7s %7s %7s %6d %7s", ms(quantile(times, 0.5)), ms(quantile(times, 0.99)), ms(quantile(times, 1)), errors,
		ms(r.stalled(Span{from, from + step})))
	for _, m := range r.Marks {
		if (Span{from, from + step}).Within(m.At) {
			fmt.Fprintf(b, "  %s (%s)", m.What, ms(m.At))
		}
	}
	b.WriteString("\n")
}

// code is a letter for who decided.
func (d *Decision) code() string {
	codes := map[string]string{"store": "s", "cache": "c", "local": "l", "open": "o", "closed": "x", "": "-"}
	if d.Err != nil {
		return "e"
	}
	if code, ok := codes[d.Source]; ok {
		return code
	}
	return "?"
}

func brief(counts map[string]int) string {
	var parts []string
	for _, code := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprint(counts[code], code))
	}
	return strings.Join(parts, " ")
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }

func (r *Record) shards() []int {
	found := map[int]bool{}
	for i := range r.Decisions {
		found[r.Decisions[i].Shard] = true
	}
	return slices.Sorted(maps.Keys(found))
}
