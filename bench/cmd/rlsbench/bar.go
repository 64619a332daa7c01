package main

import (
	"fmt"
	"io"
)

// bars are what a row must not be above; 0: anything goes.
type bars struct {
	floor    float64 // CPU per call, of the floor's
	empty    float64 // Redis CPU per call, of that with an empty script
	oneByOne float64 // Redis CPU per call, of that with each call by itself
	unmerged float64 // Redis CPU per call, of that without merging
	scripts  float64 // runs of a script per call
}

// bar is one of them with what was measured.
type bar struct {
	what      string
	got, most float64
}

// bars lists those that the row has.
func (r row) bars() []bar {
	var out []bar
	add := func(what string, most float64, got func() float64) {
		if most > 0 {
			out = append(out, bar{what, got(), most})
		}
	}
	ours, want := r.sides[1].samples, r.scenario.bars
	add("CPU, of the floor's", want.floor, r.ratio)
	add("Redis CPU, of an empty script's", want.empty, func() float64 { return r.storeRatio(emptyScript) })
	add("Redis CPU, of single calls'", want.oneByOne, func() float64 { return r.storeRatio(oneByOne) })
	add("Redis CPU, of unmerged calls'", want.unmerged, func() float64 { return r.storeRatio(unmerged) })
	add("scripts per call", want.scripts, func() float64 { return of(ours, sample.storeCallsPerCall) })
	return out
}

// storeRatio is the Redis CPU per call of envoy-rls by that of a variant.
func (r row) storeRatio(variant string) float64 {
	ratio := 0.0
	for _, s := range r.sides {
		if s.server == variant {
			ratio = of(r.sides[1].samples, sample.storeCPUPerCall) / of(s.samples, sample.storeCPUPerCall)
		}
	}
	return ratio
}

// printBars says how the rows do, and returns how many bars they miss.
func printBars(w io.Writer, rows []row) (missed int) {
	for _, r := range rows {
		for _, b := range r.bars() {
			verdict := "MISSED" // also if nothing came of the measurement, which is NaN
			if b.got <= b.most {
				verdict = "met"
			} else {
				missed++
			}
			fmt.Fprintf(w, "%s: %s: %.4g, at most %.4g: %s\n", r.scenario.name, b.what, b.got, b.most, verdict)
		}
	}
	return missed
}
