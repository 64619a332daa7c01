package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// row is a scenario with what the servers did in it: the floor, envoy-rls, and its variants if any.
type row struct {
	scenario scenario
	sides    []side
}

// side is what one server did.
type side struct {
	server  string
	samples []sample
}

// ratio is our CPU per call by the floor's, of the medians.
func (r row) ratio() float64 { return r.ofFloor(r.sides[1]) }

func (r row) ofFloor(s side) float64 {
	return of(s.samples, sample.cpuPerCall) / of(r.sides[0].samples, sample.cpuPerCall)
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
		for i, one := range r.sides {
			fmt.Fprintf(out, "| %s\t| %s\t| %.1f us\t| %.2f\t| %.0f %%\t| %.0f\t| %.0f us\t| %.0f us\t|\n", r.label(i), one.server,
				of(one.samples, sample.cpuPerCall), r.ofFloor(one), of(one.samples, denied), of(one.samples, sample.perSecond),
				of(one.samples, p50), of(one.samples, p99))
		}
	}
	return out.Flush()
}

// label is the scenario's name where its first side stands.
func (r row) label(side int) string {
	if side > 0 {
		return ""
	}
	return r.scenario.name
}

// printRedisTable prints the rows with what Redis did.
func printRedisTable(w io.Writer, rows []row) error {
	out := tabwriter.NewWriter(w, 0, 0, 1, ' ', 0)
	fmt.Fprintln(out, "| calls\t| server\t| CPU per call\t| of the floor\t| Redis CPU per call\t| envoy-rls to it\t| scripts per call\t| batch\t| denied\t| calls/s\t| p50\t| p99\t|")
	fmt.Fprintln(out, "|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|---\t|")
	for _, r := range rows {
		for i, one := range r.sides {
			s := one.samples
			fmt.Fprintf(out, "| %s\t| %s\t| %.1f us\t| %.2f\t", r.label(i), one.server, of(s, sample.cpuPerCall), r.ofFloor(one))
			if i == 0 {
				fmt.Fprint(out, "|\t|\t|\t|\t")
			} else {
				ratio := ""
				if i > 1 {
					ratio = fmt.Sprintf("%.2f", r.storeRatio(one.server))
				}
				fmt.Fprintf(out, "| %.2f us\t| %s\t| %.4f\t| %.1f\t", of(s, sample.storeCPUPerCall), ratio,
					of(s, sample.storeCallsPerCall), of(s, sample.batch))
			}
			fmt.Fprintf(out, "| %.0f %%\t| %.0f\t| %.0f us\t| %.0f us\t|\n", of(s, denied), of(s, sample.perSecond), of(s, p50), of(s, p99))
		}
	}
	return out.Flush()
}
