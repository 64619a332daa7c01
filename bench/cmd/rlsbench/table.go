package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// row is a scenario with what both servers did in it.
type row struct {
	scenario    scenario
	floor, ours []sample
}

// ratio is our CPU per call by the floor's, of the medians.
func (r row) ratio() float64 {
	return of(r.ours, sample.cpuPerCall) / of(r.floor, sample.cpuPerCall)
}

// of is the median of one figure over samples.
func of(samples []sample, figure func(sample) float64) float64 {
	var values []float64
	for _, s := range samples {
		values = append(values, figure(s))
	}
	return median(values)
}

func denied(s sample) float64 { return 100 * float64(s.denied) / float64(max(1, s.calls)) }
func p50(s sample) float64    { return float64(s.p50) / float64(time.Microsecond) }
func p99(s sample) float64    { return float64(s.p99) / float64(time.Microsecond) }

// printTable prints the rows, which have to align for people and be plain for a README.
func printTable(w io.Writer, rows []row) error {
	out := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(out, "| calls\t| server\t| CPU per call\t| of the floor\t| denied\t| calls/s\t| p50\t| p99\t|")
	fmt.Fprintln(out, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range rows {
		printSide(out, r.scenario.name, "floor", r.floor, 1)
		printSide(out, "", "envoy-rls", r.ours, r.ratio())
	}
	return out.Flush()
}

func printSide(w io.Writer, calls, server string, samples []sample, ratio float64) {
	fmt.Fprintf(w, "| %s\t| %s\t| %.1f us\t| %.2f\t| %.0f %%\t| %.0f\t| %.0f us\t| %.0f us\t|\n", calls, server,
		of(samples, sample.cpuPerCall), ratio, of(samples, denied), of(samples, sample.perSecond), of(samples, p50), of(samples, p99))
}
