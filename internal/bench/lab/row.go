package lab

import (
	"fmt"
	"slices"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/report"
)

// row sums up the rounds of a server: latencies of all calls, medians of everything else.
func (r *runner) row(side *Side, fault bench.Fault, rate bench.Rate, samples, floor []*Sample) report.Row {
	row := report.Row{Scenario: r.Scenario.Name, Fault: string(fault), Rate: rate.String(), Wanted: rate.Of(r.Peak), Server: side.Name, Errors: map[string]int64{}}
	all, late := bench.NewLatencies(), bench.NewLatencies()
	for _, s := range samples {
		all.Merge(s.Latency)
		late.Merge(s.Lag)
		row.Allowed += s.Allowed
		row.Denied += s.Denied
		row.Calls += s.Total()
		for code, n := range s.Errors {
			row.Errors[code] += n
		}
		row.Deviation = max(row.Deviation, s.Deviation)
		if wrong := r.check(side, fault, s); len(wrong) > 0 {
			row.Invalid = append(row.Invalid, wrong...)
		}
	}
	slices.Sort(row.Invalid)
	row.Invalid = slices.Compact(row.Invalid)
	row.SetLatency(all)
	row.Late = float64(late.At(0.99)) / float64(time.Microsecond)
	row.PerSecond = Median(samples, func(s *Sample) float64 { return s.PerSecond() })
	r.fillIn(&row, side, samples, floor)
	return row
}

// fillIn adds what only some servers tell.
func (r *runner) fillIn(row *report.Row, side *Side, samples, floor []*Sample) {
	if side.Pid != 0 {
		row.CPU = known(Median(samples, (*Sample).CPUPerCall))
		if f := Median(floor, (*Sample).CPUPerCall); f > 0 {
			row.OfFloor = known(*row.CPU / f)
		}
	}
	if side == r.Floor {
		return
	}
	if side.Redis != nil {
		row.ScriptsPerCall = known(Median(samples, (*Sample).ScriptsPerCall))
		if cpu := Median(samples, (*Sample).RedisCPUPerCall); cpu > 0 {
			row.RedisCPU = known(cpu)
		}
		last := samples[len(samples)-1]
		for _, n := range last.Nodes {
			if n.Primary {
				row.ScriptsPerSecond = append(row.ScriptsPerSecond, float64(n.Scripts)/last.Elapsed.Seconds())
			}
		}
	}
	if samples[0].Decisions != nil {
		row.StoreShare = known(Median(samples, func(s *Sample) float64 { share, _ := s.StoreShare("store"); return share }))
	}
	if r.Scenario.Limit > 0 {
		row.Accuracy = known(Median(samples, func(s *Sample) float64 { return float64(s.Allowed) / float64(r.Scenario.Limit) }))
	}
	row.BytesPerKey = r.perKey
}

// check says what speaks against a sample. While a shard is away, others than the store decide, and calls must not fail even then.
func (r *runner) check(side *Side, fault bench.Fault, s *Sample) []string {
	scenario := *r.Scenario
	if fault != bench.Healthy {
		scenario.DecidedBy = []string{"store", "cache", "local", "open", "closed"}
	}
	wrong := s.Check(&scenario)
	if limit := scenario.Limit; limit > 0 && side != r.Floor && fault == bench.Healthy && s.Allowed != min(limit, s.Total()) {
		wrong = append(wrong, fmt.Sprintf("%d of %d calls were allowed, the limit is %d", s.Allowed, s.Total(), limit))
	}
	if limit := scenario.Limit; limit > 0 && side != r.Floor && s.Total() < limit {
		wrong = append(wrong, fmt.Sprintf("%d calls cannot reach the limit of %d", s.Total(), limit))
	}
	return wrong
}
