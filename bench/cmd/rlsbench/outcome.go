package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/bench"
	"github.com/envoy-rls/envoy-rls/internal/bench/lab"
	"github.com/envoy-rls/envoy-rls/internal/bench/report"
)

// outcome is all that was measured.
type outcome struct {
	Machine report.Machine `json:"machine"`
	Command string         `json:"command"`
	Started time.Time      `json:"started"`
	Lines   []line         `json:"lines"`
	Bars    []bar          `json:"bars"`
	Invalid []string       `json:"invalid,omitempty"`
}

// line is what a server did in a row: medians of its rounds. Times are in microseconds.
type line struct {
	Row        string         `json:"row"`
	Server     string         `json:"server"`
	CPU        float64        `json:"cpuMicrosPerCall"`
	OfFloor    float64        `json:"cpuOfFloor,omitzero"`
	OnRedis    bool           `json:"onRedis"`
	RedisCPU   float64        `json:"redisCPUMicrosPerCall,omitzero"`
	OursToIt   float64        `json:"redisCPUOfEnvoyRLSToThis,omitzero"`
	Scripts    float64        `json:"scriptsPerCall,omitzero"`
	Batch      float64        `json:"batch,omitzero"`
	Denied     float64        `json:"deniedShare"`
	PerSecond  float64        `json:"callsPerSecond"`
	P50        float64        `json:"p50Micros"`
	P99        float64        `json:"p99Micros"`
	CPURounds  []float64      `json:"cpuRounds"`
	StoreShare float64        `json:"storeShare,omitzero"`
	Curve      []report.Point `json:"curve"`
}

// add takes in a row's result. What must not be used meets nothing.
func (o *outcome) add(r *result) {
	for _, s := range r.sides {
		if len(s.samples) > 0 {
			o.Lines = append(o.Lines, r.line(s))
		}
	}
	for _, b := range r.bars {
		b.Met = b.Met && len(r.invalid) == 0
		o.Bars = append(o.Bars, b)
	}
	for _, why := range r.invalid {
		o.Invalid = append(o.Invalid, r.row.name+": "+why)
	}
}

func (r *result) line(s *side) line {
	out := line{
		Row: r.row.name, Server: s.Name, OnRedis: s.Redis != nil,
		CPU:       s.median((*lab.Sample).CPUPerCall),
		Denied:    s.median(func(s *lab.Sample) float64 { return float64(s.Denied) / float64(max(1, s.Total())) }),
		PerSecond: s.median(func(s *lab.Sample) float64 { return s.PerSecond() }),
	}
	if r.sides[0].Name == floorProgram {
		out.OfFloor = r.ofFloor(s)
	}
	if s.Redis != nil {
		out.RedisCPU, out.Scripts, out.Batch = s.median((*lab.Sample).RedisCPUPerCall), s.median((*lab.Sample).ScriptsPerCall), s.median((*lab.Sample).Batch)
		if s.Name != envoyRLS {
			out.OursToIt = r.ofVariant(s.Name)
		}
	}
	out.StoreShare = s.median(func(s *lab.Sample) float64 { share, _ := s.StoreShare("store"); return share })
	all := bench.NewLatencies()
	for _, sample := range s.samples {
		all.Merge(sample.Latency)
		out.CPURounds = append(out.CPURounds, sample.CPUPerCall())
	}
	at := func(q float64) float64 {
		return s.median(func(s *lab.Sample) float64 { return float64(s.Latency.At(q)) / float64(time.Microsecond) })
	}
	out.P50, out.P99 = at(0.50), at(0.99)
	var curve report.Row
	curve.SetLatency(all)
	out.Curve = curve.Curve
	return out
}

// table is the lines in Markdown, and below it the bars.
func (o *outcome) table() string {
	var cells [][]string
	last := ""
	for _, l := range o.Lines {
		name := l.Row
		if name == last {
			name = ""
		}
		last = l.Row
		redis := []string{"", "", "", ""}
		if l.OnRedis {
			redis = []string{fmt.Sprintf("%.2f us", l.RedisCPU), some(l.OursToIt), fmt.Sprintf("%.4f", l.Scripts), fmt.Sprintf("%.1f", l.Batch)}
		}
		row := append([]string{name, l.Server, fmt.Sprintf("%.1f us", l.CPU), some(l.OfFloor)}, redis...)
		cells = append(cells, append(row, fmt.Sprintf("%.0f %%", l.Denied*100), fmt.Sprintf("%.0f", l.PerSecond), report.Millis(l.P50), report.Millis(l.P99)))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s.\n\n", o.Machine)
	if len(cells) > 0 {
		b.WriteString(report.Table([]string{
			"calls", "server", "CPU per call", "of the floor", "Redis CPU per call", "envoy-rls to it", "scripts per call", "batch", "denied", "calls/s", "p50", "p99",
		}, cells) + "\n")
	}
	cells = nil
	for _, bar := range o.Bars {
		met := "no"
		if bar.Met {
			met = "yes"
		}
		cells = append(cells, []string{bar.Row, explained(bar.What), fmt.Sprintf("%.4g", bar.Got), fmt.Sprintf("%.4g", bar.Most), met})
	}
	b.WriteString(report.Table([]string{"row", "measured", "is", "at most", "met"}, cells))
	for _, why := range o.Invalid {
		b.WriteString("\nNOT VALID: " + why + "\n")
	}
	return b.String()
}

func some(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", v)
}

// write prints the tables, and writes the files that the options name.
func (o *outcome) write(to options, stdout io.Writer) error {
	table := o.table()
	if _, err := io.WriteString(stdout, table); err != nil {
		return err
	}
	if to.markdown != "" {
		if err := os.WriteFile(to.markdown, []byte(table), 0o644); err != nil {
			return err
		}
	}
	if to.json != "" {
		text, err := json.MarshalIndent(o, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(to.json, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if to.svg == "" {
		return nil
	}
	return o.plot(to.svg)
}

// plot draws the CPU per call, the bars as shares of what they must not be above, and the latencies of the rows about latency.
func (o *outcome) plot(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var cpu, bars []report.Bar
	curves := map[string][]report.Curve{}
	for _, l := range o.Lines {
		cpu = append(cpu, report.Bar{Name: l.Row + ": " + l.Server, Value: l.CPU})
		if strings.HasPrefix(l.Row, "latency") {
			curves[l.Row] = append(curves[l.Row], report.Curve{Name: l.Server, Points: l.Curve})
		}
	}
	for _, b := range o.Bars {
		bars = append(bars, report.Bar{Name: b.Row + ": " + b.What, Value: 100 * b.Got / b.Most, Most: 100})
	}
	draw := func(name string, write func(io.Writer) error) error {
		file, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if err := write(file); err != nil {
			_ = file.Close()
			return err
		}
		return file.Close()
	}
	if err := draw("cpu.svg", func(w io.Writer) error { return report.WriteBars(w, "CPU per call", "%.1f us", cpu) }); err != nil {
		return err
	}
	if err := draw("bars.svg", func(w io.Writer) error {
		return report.WriteBars(w, "Measured, in percent of the bar", "%.0f %%", bars)
	}); err != nil {
		return err
	}
	for name, c := range curves {
		file := strings.ReplaceAll(strings.ToLower(name), ", ", "-") + ".svg"
		title := "Latency at half of the floor's peak: " + strings.TrimPrefix(name, "latency, ")
		if err := draw(file, func(w io.Writer) error { return report.WriteCurves(w, title, c) }); err != nil {
			return err
		}
	}
	return nil
}

// verdict is an error if something must not be used or, with check, misses its bar.
func (o *outcome) verdict(check bool) error {
	if n := len(o.Invalid); n > 0 {
		return fmt.Errorf("%d checks failed: the figures must not be used", n)
	}
	missed := 0
	for _, b := range o.Bars {
		if !b.Met {
			missed++
		}
	}
	if check && missed > 0 {
		return fmt.Errorf("%d of %d bars missed", missed, len(o.Bars))
	}
	return nil
}
